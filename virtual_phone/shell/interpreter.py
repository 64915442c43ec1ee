"""The phone's shell: runs scripts, and passes each command its context."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from virtual_phone.shell.arithmetic import ArithmeticFailure
from virtual_phone.shell.compound_commands import (
    COMMANDS_PER_TURN,
    FunctionReturn,
    LoopJump,
)
from virtual_phone.shell.expansion import MAX_LENGTH
from virtual_phone.shell.pipelines import BROKEN_PIPE, Pipelines
from virtual_phone.shell.redirects import CommandIO, Read, Redirects
from virtual_phone.shell.shell_parser import parse
from virtual_phone.shell.shell_state import BUILTINS, ShellExit, ShellFailure
from virtual_phone.shell.syntax_tree import (
    MAX_NESTING,
    Pipeline,
    Script,
    ShellCommand,
    ShellSyntaxError,
)
from virtual_phone.system.file_system import normalize_path
from virtual_phone.system.process_table import Process
from virtual_phone.virtual_phone import VirtualPhone

_MAX_IN_MEMORY = 64 << 20
"""Largest input, in bytes, that a command may hold in memory."""
_PROGRAM_FOLDERS = frozenset((
    "/bin", "/system/bin", "/system/xbin", "/product/bin", "/vendor/bin", "/odm/bin",
))  # fmt: skip
_SPECIAL = BUILTINS - {"cd", "command", "let", "local", "read", "source", "type", "wait"}
"""Builtins that keep the assignments before them, as POSIX demands."""


@dataclass(slots=True, kw_only=True)
class CommandContext:
    """One invocation of a command: arguments, streams, and the shell that runs it."""

    shell: "ShellInterpreter"
    name: str
    arguments: list[str]
    io: CommandIO
    process: Process | None = None
    """The command's entry in the phone's table of processes, while it waits."""

    @property
    def phone(self) -> VirtualPhone:
        """The phone that the command runs on."""
        return self.shell.phone

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its shell."""
        return self.shell.environment

    def out(self, data: bytes | memoryview) -> None:
        """Write to standard output."""
        self.io.out(data)

    def print(self, text: str) -> int:
        """Write a line to standard output; returns the exit code 0."""
        self.io.out(f"{text}\n".encode("utf-8", "surrogateescape"))
        return 0

    def fail(self, text: str, code: int = 1) -> int:
        """Write a line to standard error; returns the exit code."""
        self.io.err(f"{text}\n".encode("utf-8", "surrogateescape"))
        return code

    def path(self, path: str) -> str:
        """An absolute path, resolved against the working directory."""
        return normalize_path(path, self.environment["PWD"])

    async def read_all(self) -> bytes:
        """Read standard input to its end."""
        return await read_to_end(self.io.read)


CommandFunction = Callable[[CommandContext], "int | Awaitable[int]"]
"""A command; returns its exit code."""


async def read_to_end(read: Read) -> bytes:
    """Read to the end."""
    chunks, length = [], 0
    while chunk := await read():
        chunks.append(chunk)
        length += len(chunk)
        if length > _MAX_IN_MEMORY:
            raise OSError(12, "Cannot allocate memory")
    return b"".join(chunks)


@dataclass(slots=True, kw_only=True)
class ShellInterpreter(Pipelines):
    """One shell; `$?` and variables live as long as it does."""

    phone: VirtualPhone
    commands: Mapping[str, CommandFunction]
    substituted: int = 0
    """Exit code of the last `$(...)` of the current command."""

    async def run(self, script: str) -> int:
        """Run a script and wait for what it leaves running; returns its exit code."""
        return await self.live(self.run_text(script))

    async def live(self, work: Awaitable[object]) -> int:
        """Be a process while something runs in this shell; returns the exit code."""
        self.process = process = self.phone.processes.start(("sh",), 1)
        try:
            await work
            if self.traps or self.jobs:
                await self._finish()
        except asyncio.CancelledError:
            if not process.signal:
                raise
            self.code = self._die(process)
        finally:
            self.phone.processes.end(process)
            for job in self.jobs.values():
                job.task.cancel() if job.task is not None else None
        return self.code

    async def run_typed(self, script: Script) -> None:
        """Run a part of a script that is still being read."""
        try:
            await self.run_list(script)
        except ShellFailure as error:
            self.code = error.code
            if self.io.terminal is None:
                raise
        except FunctionReturn as end:
            raise ShellExit(end.code) from None
        except (LoopJump, RecursionError) as error:
            self.code = int(isinstance(error, RecursionError))

    async def _finish(self) -> None:
        """Run the trap of EXIT, and wait for jobs.

        As with adbd, the connection stays open while background commands can write to it.
        """
        await self._run_exit_trap()
        tasks = [job.task for job in self.jobs.values() if job.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()  # a bug raises again

    async def _run_exit_trap(self) -> int:
        code = self.code
        if action := self.traps.pop("EXIT", ""):
            await self.run_text(action)
            self.code = code
        return code

    def _die(self, process: Process) -> int:
        """The exit code of a program that a signal has ended in the current task."""
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        return 128 + process.signal

    async def run_text(self, script: str, first_line: int = 0) -> int:
        """Run a script to its end or its `exit`; returns its exit code."""
        pipelines = self._parsed(script, first_line)
        return 1 if pipelines is None else await self.run_parsed(pipelines)

    async def run_here(self, script: str, first_line: int = 0) -> int:
        """Run a script as a part of the one that runs: `exit` and `break` go beyond it."""
        pipelines = self._parsed(script, first_line)
        if pipelines is None:
            raise ShellFailure(1)
        self.code, line = 0, self.line
        self.depth += 1
        try:
            return await self.run_list(pipelines)
        finally:
            self.depth -= 1
            self.line = line

    def _parsed(self, script: str, first_line: int) -> Script | None:
        """The parsed script; None, after an error message, if it is invalid."""
        try:
            if self.depth > MAX_NESTING:
                raise ShellSyntaxError("nested too deeply")
            return parse(script, first_line)
        except (ShellSyntaxError, RecursionError) as error:
            self.complain(str(error) or "nested too deeply")
            self.code = 1
            return None

    async def run_parsed(self, script: Script) -> int:
        """Run a parsed script; returns its exit code."""
        try:
            await self.run_list(script)
        except (ShellExit, FunctionReturn) as end:
            self.code = end.code
        except LoopJump:
            pass
        except RecursionError:
            self.complain("nested too deeply")
            self.code = 1
        return self.code

    async def run_list(self, script: Script) -> int:
        """Run a parsed script; `exit` also ends the enclosing script."""
        for number, pipeline in enumerate(script, 1):
            if pipeline.joint != ";" and (pipeline.joint == "&&") != (self.code == 0):
                continue
            if pipeline.background:
                self._start_job(pipeline)
            else:
                if pipeline.negated or len(pipeline.commands) > 1:
                    self.code = await self.run_pipeline(pipeline)
                else:
                    self.code = await self.run_command(pipeline.commands[0], self.io)
                if self.code and "e" in self.options and not pipeline.negated:
                    is_last = number == len(script) or script[number].joint == ";"
                    if is_last and not self.is_condition:
                        raise ShellExit(self.code)
            self.num_commands += 1
            if self.num_commands % COMMANDS_PER_TURN == 0:
                await asyncio.sleep(0)
            if number < len(script):
                await self.io.drain()
        return self.code

    def _start_job(self, pipeline: Pipeline) -> None:
        """Run a pipeline in the background."""
        shell = self.inner(self.io)
        written = pipeline.commands[0].words
        words = ["".join(part.text for part in word) for word in written] or ["sh"]
        process = self.phone.processes.start(words, self.pid)

        async def work() -> None:
            try:
                process.code = await shell.run_parsed([replace(pipeline, background=False)])
            except BrokenPipeError:
                process.code = BROKEN_PIPE

        def end(task: "asyncio.Task[None]") -> None:
            if task.cancelled():
                process.code = 128 + process.signal
            self.phone.processes.end(process)

        process.task = task = asyncio.get_running_loop().create_task(work())
        task.add_done_callback(end)
        self.jobs[process.pid] = process
        self.own_jobs.append(process.pid)
        self.code = 0

    def inner(self, io: CommandIO) -> Self:
        """A nested shell, which cannot change the variables of this one."""
        return type(self)(
            phone=self.phone,
            commands=self.commands,
            io=io,
            environment=dict(self.environment),
            exported=set(self.exported),
            read_only=set(self.read_only),
            functions=dict(self.functions),
            options=set(self.options),
            positional=self.positional,
            name=self.name,
            code=self.code,
            depth=self.depth + 1,
            jobs=self.jobs,
            process=self.process,
            is_condition=self.is_condition,
            line=self.line,
            started_s=self.started_s,
        )

    async def run_program(
        self,
        ctx: CommandContext,
        script: str,
        words: Sequence[str],
        options: frozenset[str] | set[str] = frozenset(),
        first_line: int = 1,
    ) -> int:
        """Run a script as a program of its own, which sees only exported variables."""
        known = self.environment
        shell = ShellInterpreter(
            phone=self.phone,
            commands=self.commands,
            io=ctx.io,
            environment={n: v for n, v in known.items() if n in self.exported},
            exported=set(self.exported),
            options=set(options),
            positional=list(words[1:]),
            name=words[0],
            depth=self.depth + 1,
            jobs=self.jobs,
            process=ctx.process,
        )
        await shell.run_text(script, first_line)
        return await shell._run_exit_trap()

    async def execute(self, words: Sequence[str], io: CommandIO) -> int:
        """Run one command, given by its name and arguments."""
        spelled, *arguments = words
        if spelled in self.functions:
            return await self.call(self.functions[spelled], arguments, io)
        folder, _, name = spelled.rpartition("/")
        if name == "exec" and arguments:
            raise ShellExit(await self.execute(arguments, io))
        ctx = CommandContext(shell=self, name=name, arguments=arguments, io=io)
        is_program = name == spelled or folder in _PROGRAM_FOLDERS
        run = self.commands.get(name) if is_program else None
        if run is None:
            return await self._run_file(ctx, spelled)
        self.phone.command_history.add((name, *arguments))
        try:
            result = run(ctx)
            return result if isinstance(result, int) else await self._await(ctx, result)
        except BrokenPipeError:
            raise
        except OSError as error:
            where = "" if error.filename is None else f"{error.filename}: "
            return ctx.fail(f"{ctx.name}: {where}{error.strerror}")
        except ArithmeticFailure as error:
            return ctx.fail(f"sh: {ctx.name}: {error}")

    async def _await(self, ctx: CommandContext, result: Awaitable[int]) -> int:
        """Wait for a command that can be listed and killed meanwhile."""
        if ctx.name in BUILTINS:
            return await result
        ctx.process = process = self.phone.processes.start((ctx.name, *ctx.arguments), self.pid)
        try:
            return await result
        except asyncio.CancelledError:
            if not process.signal:
                raise
            return self._die(process)
        finally:
            self.phone.processes.end(process)

    async def _run_file(self, ctx: CommandContext, spelled: str) -> int:
        """Run a script by its path, or by its name in a folder of $PATH."""
        files, path = self.phone.files, ctx.path(spelled)
        if "/" not in spelled:
            folders = self.environment.get("PATH", "").split(":")
            found = (f"{folder}/{spelled}" for folder in folders if folder)
            path = next((p for p in found if (n := files.find(p)) and n.mode & 0o111), "")
        node = files.find(path) if path else None
        if node is None:
            return ctx.fail(f"sh: {spelled}: inaccessible or not found", 127)
        if node.content is None:
            return ctx.fail(f"sh: {spelled}: can't execute: Is a directory", 126)
        # As on a phone, where nothing on the shared storage can be executed.
        if not node.mode & 0o111 or path.startswith("/sdcard/"):
            return ctx.fail(f"sh: {spelled}: can't execute: Permission denied", 126)
        script = node.content.decode("utf-8", "surrogateescape")
        run = self.run_program(ctx, script, [spelled, *ctx.arguments])
        return await self._await(ctx, run)

    async def run_command(self, command: ShellCommand, io: CommandIO) -> int:
        """Run a command with these streams; returns its exit code."""
        self.line = command.line or self.line
        if not command.redirects:
            try:
                return await self._run_words(command, io)
            except BrokenPipeError:
                raise
            except OSError as error:  # a value is too long
                self.complain(f"{error.filename}: {error.strerror}")
                return 1
        redirects = Redirects(self.phone.files, self.environment["PWD"])
        try:
            for redirect in command.redirects:
                if redirect.operator in ("<<", "<<-", "<<<"):
                    target = await self.text_of(redirect.target)
                else:
                    target = " ".join(await self.expanded([redirect.target]))
                io = redirects.apply(redirect, target, io)
            code = await self._run_words(command, io)
            redirects.write()
        except BrokenPipeError:
            raise
        except OSError as error:
            io.err(f"sh: {error.filename}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
            return 1
        finally:
            redirects.close()
        return code

    async def _run_words(self, command: ShellCommand, io: CommandIO) -> int:
        """Run a command whose redirections have been made."""
        if command.compound is not None:
            outer, self.io = self.io, io
            try:
                return await self.run_compound(command)
            finally:
                self.io = outer
        self.substituted = 0
        texts = command.texts
        words = await self.expanded(command.words) if texts is None else texts
        if not command.assignments:
            if not words:
                return self.substituted
            if words == ["exec"]:
                self.io = io
                return 0
            if "x" in self.options:
                self.io.err(f"+ {' '.join(words)}\n".encode("utf-8", "surrogateescape"))
            return await self.execute(words, io)
        if not words or words[0] in _SPECIAL:
            for assignment in command.assignments:
                await self.assign_word(assignment)
            return await self.execute(words, io) if words else self.substituted
        known, exported = dict(self.environment), set(self.exported)
        try:
            for assignment in command.assignments:
                await self.assign_word(assignment)
                self.exported.add(assignment.name)
            return await self.execute(words, io)
        finally:
            for name in {assignment.name for assignment in command.assignments}:
                self.environment.pop(name, None)
                if name in known:
                    self.environment[name] = known[name]
            self.exported = exported

    async def run_subshell(self, script: Script) -> int:
        """Run a parsed script in a shell of its own; returns its exit code."""
        shell = self.inner(self.io)
        await shell.run_parsed(script)
        return await shell._run_exit_trap()

    async def output_of(self, script: Script) -> str:
        """Run a script and return its output, for `$(...)`."""
        chunks: list[bytes | memoryview] = []
        length = 0

        def write(data: bytes | memoryview) -> None:
            nonlocal length
            length += len(data)
            if length > MAX_LENGTH:
                self.complain("Cannot allocate memory")
                raise BrokenPipeError(32, "Broken pipe")
            chunks.append(bytes(data))

        io = self.io._replace(out=write, drain=_yield)
        shell = self.inner(io)
        shell.line = 0
        try:
            self.substituted = await shell.run_parsed(script)
        except BrokenPipeError:
            self.substituted = BROKEN_PIPE
        for pid in shell.own_jobs:
            with contextlib.suppress(KeyError):
                await asyncio.wait([task for task in [self.jobs[pid].task] if task is not None])
        return b"".join(chunks).replace(b"\0", b"").decode("utf-8", "surrogateescape").rstrip("\n")


async def _yield() -> None:
    """Let others have their turn: nothing else limits what is written."""
    await asyncio.sleep(0)
