"""The phone's shell: runs scripts and passes each command its context."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace

from virtual_phone.shell.arithmetic import ArithmeticFailure
from virtual_phone.shell.command_context import CommandContext, CommandFunction, UsageError
from virtual_phone.shell.command_streams import CommandIO
from virtual_phone.shell.compound_commands import CompoundCommands
from virtual_phone.shell.field_splitting import MAX_LENGTH
from virtual_phone.shell.pipelines import BROKEN_PIPE, Pipelines
from virtual_phone.shell.redirects import Redirects
from virtual_phone.shell.shell_parser import parse
from virtual_phone.shell.shell_state import (
    BUILTINS,
    FunctionReturn,
    LoopJump,
    ShellExit,
    ShellFailure,
    ShellState,
)
from virtual_phone.shell.syntax_tree import (
    MAX_NESTING,
    Pipeline,
    Script,
    ShellCommand,
    ShellSyntaxError,
)
from virtual_phone.shell.word_expander import WordExpander
from virtual_phone.system.process_table import Process

_COMMANDS_PER_TURN = 32
"""Number of commands after which other phones get a turn."""
_MAX_CALLS = 30
"""Maximum depth of nested function calls."""
_PROGRAM_FOLDERS = frozenset((
    "/bin", "/system/bin", "/system/xbin", "/product/bin", "/vendor/bin", "/odm/bin",
))  # fmt: skip
_SPECIAL = BUILTINS - {"cd", "command", "local", "read", "source", "type", "wait"}
"""Builtins after which preceding assignments persist, as POSIX demands."""


class ShellInterpreter:
    """A shell; `$?` and variables last for its lifetime."""

    def __init__(self, state: ShellState, commands: Mapping[str, CommandFunction]) -> None:
        self.state = state
        self.commands = commands
        self.words = WordExpander(state, self._output_of)
        self._pipelines = Pipelines(state, commands, self._run_command, self._run_command_apart)
        self._compounds = CompoundCommands(state, self.words, self._run_list, self._run_apart)
        self._substituted = 0
        """Exit code of the last `$(...)` of the current command."""
        self._num_commands = 0
        """Number of commands run so far."""
        self._num_calls = 0
        """Current depth of nested function calls."""

    async def run(self, script: str) -> int:
        """Run a script and wait for its background jobs; return its exit code."""
        return await self.live(self.run_text(script))

    async def live(self, work: Awaitable[object]) -> int:
        """List this shell as a process while `work` runs in it; return the exit code."""
        state, table = self.state, self.state.phone.processes
        state.process = process = table.start(("sh",), 1)
        try:
            await work
            await self._run_exit_trap()
            # Like adbd, keep the connection open while background commands can write to it.
            tasks = [job.task for job in state.jobs.values() if job.task is not None]
            if tasks:
                await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.result()  # re-raise the exception of a bug
        except asyncio.CancelledError:
            if not process.signal:
                raise
            state.code = _die(process)
        finally:
            table.end(process)
            for job in state.jobs.values():
                job.task.cancel() if job.task is not None else None
        return state.code

    async def run_typed(self, script: Script) -> None:
        """Run part of a script that is still being read; raise ShellExit if the script must end."""
        try:
            await self._run_list(script)
        except ShellFailure as error:
            self.state.code = error.code
            if self.state.io.terminal is None:
                raise
        except FunctionReturn as end:
            raise ShellExit(end.code) from None
        except (LoopJump, RecursionError) as error:
            self.state.code = int(isinstance(error, RecursionError))

    async def _run_exit_trap(self) -> int:
        code = self.state.code
        action, self.state.exit_trap = self.state.exit_trap, ""
        if action:
            await self.run_text(action)
            self.state.code = code
        return code

    async def run_text(self, script: str) -> int:
        """Run a script to its end or to `exit`; return its exit code."""
        parsed = self._parsed(script)
        return 1 if parsed is None else await self._run_parsed(parsed)

    async def run_here(self, script: str) -> int:
        """Run a script as part of the enclosing script, which `exit` and `break` also affect."""
        parsed = self._parsed(script)
        if parsed is None:
            raise ShellFailure(1)
        self.state.code = 0
        self.state.depth += 1
        try:
            return await self._run_list(parsed)
        finally:
            self.state.depth -= 1

    def _parsed(self, script: str) -> Script | None:
        """Parse a script; if it is invalid, print an error message and return None."""
        try:
            if self.state.depth > MAX_NESTING:
                raise ShellSyntaxError("nested too deeply")
            return parse(script)
        except (ShellSyntaxError, RecursionError) as error:
            self.state.complain(str(error) or "nested too deeply")
            self.state.code = 1
            return None

    async def _run_parsed(self, script: Script) -> int:
        try:
            await self._run_list(script)
        except (ShellExit, FunctionReturn) as end:
            self.state.code = end.code
        except LoopJump:
            pass
        except RecursionError:
            self.state.complain("nested too deeply")
            self.state.code = 1
        return self.state.code

    def inner(self, io: CommandIO) -> "ShellInterpreter":
        """Create a nested shell, which cannot change the variables of this shell."""
        return ShellInterpreter(self.state.nested(io), self.commands)

    async def run_program(
        self,
        ctx: CommandContext,
        script: str,
        words: Sequence[str],
        options: frozenset[str] | set[str] = frozenset(),
    ) -> int:
        """Run a script as a separate program, which sees only exported variables.

        `words` are `$0` and the positional parameters; `options` are letters of `set`.
        """
        known = self.state
        state = ShellState(
            phone=known.phone,
            io=ctx.io,
            environment={n: v for n, v in known.environment.items() if n in known.exported},
            exported=set(known.exported),
            options=set(options),
            positional=list(words[1:]),
            name=words[0],
            depth=known.depth + 1,
            jobs=known.jobs,
            process=ctx.process,
        )
        shell = ShellInterpreter(state, self.commands)
        await shell.run_text(script)
        return await shell._run_exit_trap()

    async def _output_of(self, script: Script) -> str:
        """Run a script and return its output, for `$(...)`."""
        chunks: list[bytes | memoryview] = []
        length = 0

        def write(data: bytes | memoryview) -> None:
            nonlocal length
            length += len(data)
            if length > MAX_LENGTH:
                self.state.complain("Cannot allocate memory")
                raise BrokenPipeError(32, "Broken pipe")
            chunks.append(bytes(data))

        async def take_turns() -> None:  # writing never blocks, so yield explicitly
            await asyncio.sleep(0)

        shell = self.inner(self.state.io._replace(out=write, drain=take_turns))
        try:
            self._substituted = await shell._run_parsed(script)
        except BrokenPipeError:
            self._substituted = BROKEN_PIPE
        # Like a pipe, the substitution ends once nothing can write to it.
        for pid in shell.state.own_jobs:
            if (task := self.state.jobs[pid].task) is not None:
                await asyncio.wait([task])
        # mksh drops null bytes and trailing newlines.
        return b"".join(chunks).replace(b"\0", b"").decode("utf-8", "surrogateescape").rstrip("\n")

    async def _run_list(self, script: Script) -> int:
        """Run a parsed script; `exit` also ends the enclosing script."""
        state = self.state
        for number, pipeline in enumerate(script, 1):
            if pipeline.joint != ";" and (pipeline.joint == "&&") != (state.code == 0):
                continue
            if pipeline.background:
                self._start_job(pipeline)
            else:
                if pipeline.negated or len(pipeline.commands) > 1:
                    state.code = await self._pipelines.run(pipeline)
                else:
                    state.code = await self._run_command(pipeline.commands[0], state.io)
                if state.code and "e" in state.options and not pipeline.negated:
                    is_last = number == len(script) or script[number].joint == ";"
                    if is_last and not state.is_condition:
                        raise ShellExit(state.code)
            self._num_commands += 1
            if self._num_commands % _COMMANDS_PER_TURN == 0:
                await asyncio.sleep(0)
            if number < len(script):
                await state.io.drain()
        return state.code

    async def _run_apart(self, script: Script) -> int:
        """Run a script in a subshell, for `( ... )`."""
        shell = self.inner(self.state.io)
        await shell._run_parsed(script)
        return await shell._run_exit_trap()

    async def _run_command_apart(self, command: ShellCommand, io: CommandIO) -> int:
        return await self.inner(io)._run_command(command, io)

    def _start_job(self, pipeline: Pipeline) -> None:
        """Run a pipeline in the background."""
        state, shell = self.state, self.inner(self.state.io)
        written = pipeline.commands[0].words
        words = ["".join(part.text for part in word) for word in written] or ["sh"]
        process = state.phone.processes.start(words, state.pid)

        async def work() -> None:
            try:
                process.code = await shell._run_parsed([replace(pipeline, background=False)])
            except BrokenPipeError:
                process.code = BROKEN_PIPE

        def end(task: "asyncio.Task[None]") -> None:
            if task.cancelled():
                process.code = 128 + process.signal
            state.phone.processes.end(process)

        process.task = task = asyncio.get_running_loop().create_task(work())
        task.add_done_callback(end)
        state.jobs[process.pid] = process
        state.own_jobs.append(process.pid)
        state.code = 0

    async def _run_command(self, command: ShellCommand, io: CommandIO) -> int:
        """Run a command with the given streams; return its exit code."""
        state, redirects = self.state, None
        try:
            if command.redirects:
                redirects = Redirects(state.phone.files, state.environment["PWD"])
                for redirect in command.redirects:
                    if redirect.operator in ("<<", "<<-", "<<<"):
                        target = await self.words.text_of(redirect.target)
                    else:
                        target = " ".join(await self.words.expanded([redirect.target]))
                    io = redirects.apply(redirect, target, io)
            if command.compound is None:
                code = await self._run_words(command, io)
            else:
                outer, state.io = state.io, io
                try:
                    code = await self._compounds.run(command.compound)
                finally:
                    state.io = outer
            if redirects is not None:
                redirects.write()
        except BrokenPipeError:
            raise
        except OSError as error:  # from a redirection or a value that is too long
            io.err(f"sh: {error.filename}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
            return 1
        finally:
            if redirects is not None:
                redirects.close()
        return code

    async def _run_words(self, command: ShellCommand, io: CommandIO) -> int:
        """Run a simple command after its redirections have been set up."""
        state, self._substituted = self.state, 0
        texts = command.texts
        words = await self.words.expanded(command.words) if texts is None else texts
        if not command.assignments:
            if not words:
                return self._substituted
            if words == ["exec"]:
                state.io = io
                return 0
            if "x" in state.options:
                state.io.err(f"+ {' '.join(words)}\n".encode("utf-8", "surrogateescape"))
            return await self.execute(words, io)
        # POSIX: assignments persist before a special builtin; before other commands they do not.
        names = [assignment.name for assignment in command.assignments]
        if not words or words[0] in _SPECIAL:
            for assignment in command.assignments:
                await self.words.assign(assignment)
            return await self.execute(words, io) if words else self._substituted
        known = {name: (state.environment.get(name), name in state.exported) for name in names}
        for assignment in command.assignments:
            await self.words.assign(assignment)
        state.exported.update(names)
        try:
            return await self.execute(words, io)
        finally:
            for name, (value, was_exported) in known.items():
                state.environment.pop(name, None)
                if value is not None:
                    state.environment[name] = value
                if not was_exported:
                    state.exported.discard(name)

    async def execute(self, words: Sequence[str], io: CommandIO) -> int:
        """Run a command, given its name and arguments."""
        spelled, *arguments = words
        if spelled in self.state.functions:
            return await self._call(self.state.functions[spelled], arguments, io)
        folder, _, name = spelled.rpartition("/")
        # The program replaces the shell, so nothing runs after it.
        if name == "exec" and arguments:
            raise ShellExit(await self.execute(arguments, io))
        ctx = CommandContext(shell=self, name=name, arguments=arguments, io=io)
        is_program = name == spelled or folder in _PROGRAM_FOLDERS
        run = self.commands.get(name) if is_program else None
        if run is None:
            return await self._run_file(ctx, spelled)
        self.state.phone.command_history.add((name, *arguments))
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
        except UsageError as error:
            return ctx.fail(f"{ctx.name}: {error}")

    async def _await(self, ctx: CommandContext, result: Awaitable[int]) -> int:
        """Wait for a command that can be listed and killed while it runs."""
        if ctx.name in BUILTINS:
            return await result
        table, words = ctx.phone.processes, (ctx.name, *ctx.arguments)
        ctx.process = process = table.start(words, self.state.pid)
        try:
            return await result
        except asyncio.CancelledError:
            if not process.signal:
                raise
            return _die(process)
        finally:
            table.end(process)

    async def _run_file(self, ctx: CommandContext, spelled: str) -> int:
        """Run a script given by its path, or by its name in a folder of $PATH."""
        files, path = ctx.phone.files, ctx.path(spelled)
        if "/" not in spelled:
            folders = ctx.environment.get("PATH", "").split(":")
            found = (f"{folder}/{spelled}" for folder in folders if folder)
            path = next((p for p in found if (n := files.find(p)) and n.mode & 0o111), "")
        node = files.find(path) if path else None
        if node is None:
            return ctx.fail(f"sh: {spelled}: inaccessible or not found", 127)
        if node.content is None:
            return ctx.fail(f"sh: {spelled}: can't execute: Is a directory", 126)
        # As on a real phone, nothing on the shared storage can be executed.
        if not node.mode & 0o111 or path.startswith("/sdcard/"):
            return ctx.fail(f"sh: {spelled}: can't execute: Permission denied", 126)
        script = node.content.decode("utf-8", "surrogateescape")
        run = self.run_program(ctx, script, [spelled, *ctx.arguments])
        return await self._await(ctx, run)

    async def _call(self, body: ShellCommand, arguments: Sequence[str], io: CommandIO) -> int:
        """Call a function; return its exit code."""
        state = self.state
        if self._num_calls >= _MAX_CALLS:
            state.complain("functions are nested too deeply")
            raise ShellFailure(1)
        positional, state.positional = state.positional, list(arguments)
        num_loops, state.num_loops = state.num_loops, 0
        self._num_calls += 1
        state.frames.append({})
        try:
            return await self._run_command(body, io)
        except FunctionReturn as end:
            return end.code
        finally:
            for name, value in state.frames.pop().items():
                state.environment.pop(name, None)
                if value is not None:
                    state.environment[name] = value
            self._num_calls -= 1
            state.positional, state.num_loops = positional, num_loops


def _die(process: Process) -> int:
    """Clear the current task's cancellation by a signal; return the program's exit code."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
    return 128 + process.signal
