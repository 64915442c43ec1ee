"""The phone's shell: runs scripts, and passes each command its context."""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from agentrl.virtual_phone.shell.expansion import PATTERN_CHARACTERS, expand
from agentrl.virtual_phone.shell.redirects import CommandIO, Read, Redirects, never_full
from agentrl.virtual_phone.shell.shell_parser import parse
from agentrl.virtual_phone.shell.syntax_tree import (
    MAX_NESTING,
    Pipeline,
    Script,
    ShellCommand,
    ShellSyntaxError,
    Word,
    WordPart,
)
from agentrl.virtual_phone.system.file_system import normalize_path
from agentrl.virtual_phone.system.pipe import Pipe
from agentrl.virtual_phone.virtual_phone import VirtualPhone

_PATH = "/product/bin:/system/bin:/system/xbin:/vendor/bin"
_ENVIRONMENT = {
    "ANDROID_DATA": "/data",
    "EXTERNAL_STORAGE": "/sdcard",
    "HOME": "/",
    "IFS": " \t\n",
    "PATH": _PATH,
    "PWD": "/",
    "SHELL": "/system/bin/sh",
    "USER": "shell",
}
_BROKEN_PIPE = 141
_FILTERS = frozenset(("grep", "head", "wc"))
"""Commands that end as soon as their input does."""
_COMMANDS_PER_TURN = 32
"""Commands after which other phones get their turn."""


MAX_IN_MEMORY = 64 << 20
"""Largest input, in bytes, that a command may hold in memory."""


@dataclass(slots=True, kw_only=True)
class CommandContext:
    """One invocation of a command: arguments, streams, and the shell that runs it."""

    shell: "ShellInterpreter"
    name: str
    arguments: list[str]
    io: CommandIO

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
        """Read standard input to its end.

        Raises:
            OSError: it is too long.
        """
        return await read_to_end(self.io.read)


CommandFunction = Callable[[CommandContext], "int | Awaitable[int]"]
"""A command; returns its exit code."""


async def read_to_end(read: Read) -> bytes:
    """Read to the end.

    Raises:
        OSError: it is too long.
    """
    chunks, length = [], 0
    while chunk := await read():
        chunks.append(chunk)
        length += len(chunk)
        if length > MAX_IN_MEMORY:
            raise OSError(12, "Cannot allocate memory")
    return b"".join(chunks)


class ShellExit(Exception):
    """Raised by the `exit` command."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True, kw_only=True)
class ShellInterpreter:
    """One shell; `$?` and variables live as long as it does."""

    phone: VirtualPhone
    commands: Mapping[str, CommandFunction]
    io: CommandIO
    environment: dict[str, str] = field(default_factory=_ENVIRONMENT.copy)
    code: int = 0
    depth: int = 0
    """Number of shells that this one is nested in."""

    async def run(self, script: str) -> int:
        """Run a script; returns its exit code."""
        try:
            if self.depth > MAX_NESTING:
                raise ShellSyntaxError("nested too deeply")
            pipelines = parse(script)
        except ShellSyntaxError as error:
            self.io.err(f"sh: {error}\n".encode("utf-8", "surrogateescape"))
            self.code = 1
            return 1
        return await self.run_parsed(pipelines)

    async def run_parsed(self, script: Script) -> int:
        """Run a parsed script; returns its exit code."""
        try:
            await self._run_list(script)
        except ShellExit as end:
            self.code = end.code
        return self.code

    async def _run_list(self, script: Script) -> int:
        """Run a parsed script; `exit` also ends the enclosing script."""
        background: list[asyncio.Task[int]] = []
        try:
            for number, pipeline in enumerate(script, 1):
                if pipeline.joint != ";" and (pipeline.joint == "&&") != (self.code == 0):
                    continue
                if pipeline.background:
                    inner = self.inner(self.io).run_parsed([replace(pipeline, background=False)])
                    background.append(asyncio.create_task(inner))
                    self.code = 0
                else:
                    self.code = await self._run_pipeline(pipeline)
                if number % _COMMANDS_PER_TURN == 0:
                    await asyncio.sleep(0)
            # As with adbd, the connection stays open while background commands can write to it.
            await asyncio.gather(*background)
        finally:
            for task in background:
                task.cancel()
        return self.code

    def inner(self, io: CommandIO) -> "ShellInterpreter":
        """A nested shell, which cannot change the variables of this one."""
        return ShellInterpreter(
            phone=self.phone,
            commands=self.commands,
            io=io,
            environment=dict(self.environment),
            code=self.code,
            depth=self.depth + 1,
        )

    async def execute(self, ctx: CommandContext, spelled: str) -> int:
        """Run one command."""
        if ctx.name == "exec" and ctx.arguments:
            spelled, *ctx.arguments = ctx.arguments
            ctx.name = spelled.rpartition("/")[2]
        run = self.commands.get(ctx.name)
        if run is None:
            return ctx.fail(f"sh: {spelled}: inaccessible or not found", 127)
        self.phone.command_history.add((ctx.name, *ctx.arguments))
        try:
            result = run(ctx)
            return result if isinstance(result, int) else await result
        except BrokenPipeError:
            raise
        except OSError as error:
            where = "" if error.filename is None else f"{error.filename}: "
            return ctx.fail(f"{ctx.name}: {where}{error.strerror}")

    async def _run_pipeline(self, pipeline: Pipeline) -> int:
        if len(pipeline.commands) == 1:
            code = await self._run_command(pipeline.commands[0], self.io)
        else:
            code = await self._run_together(pipeline)
        return int(not code) if pipeline.negated else code

    async def _run_together(self, pipeline: Pipeline) -> int:
        """Run the commands of a pipe concurrently."""
        commands = pipeline.commands
        pipes = [Pipe() for _ in commands[1:]]
        ends = zip(commands, [None, *pipes], [*pipes, None], strict=True)
        if self._never_waits(pipeline):  # one after the other: tasks cost more than most commands
            code = 0
            for stage in ends:
                code = await self._stage(*stage, is_alone=True)
            return code
        tasks = [asyncio.create_task(self._stage(*stage)) for stage in ends]
        try:
            return (await asyncio.gather(*tasks))[-1]
        finally:
            for task in tasks:
                task.cancel()

    def _never_waits(self, pipeline: Pipeline) -> bool:
        """Whether the commands of a pipe surely wait for nothing but each other."""
        if pipeline.never_waits is None:
            pipeline.never_waits = not pipeline.background and all(
                self._returns_at_once(command, is_first=not number)
                for number, command in enumerate(pipeline.commands)
            )
        return pipeline.never_waits

    def _returns_at_once(self, command: ShellCommand, *, is_first: bool) -> bool:
        if command.group is not None and is_first and not command.redirects:
            return all(map(self._never_waits, command.group))
        parts = [part for word in command.words for part in word]
        if not parts or command.redirects or any(part.kind != "text" for part in parts):
            return False
        name = parts[0].text
        known = self.commands.get(name)
        is_function = known is not None and not inspect.iscoroutinefunction(known)
        return is_function or (name in _FILTERS and not is_first)

    async def _stage(
        self,
        command: ShellCommand,
        source: Pipe | None,
        sink: Pipe | None,
        *,
        is_alone: bool = False,
    ) -> int:
        """Run one command of a pipe; when it ends, the command before it gets a broken pipe.

        Args:
            command: to run.
            source: its input; None for that of the shell.
            sink: its output; None for that of the shell.
            is_alone: whether nothing reads the output before the command has ended.
        """
        outer = self.io
        io = CommandIO(
            out=outer.out if sink is None else sink.write,
            err=outer.err,
            read=outer.read if source is None else source.read,
            drain=never_full if is_alone else outer.drain if sink is None else sink.drain,
        )
        try:
            return await self.inner(io)._run_command(command, io)
        except ShellExit as end:
            return end.code
        except BrokenPipeError:
            return _BROKEN_PIPE
        finally:
            if sink is not None:
                sink.write_eof()
            if source is not None:
                source.close_reader()

    async def _run_command(self, command: ShellCommand, io: CommandIO) -> int:
        written = list(command.words)
        while written and _is_assignment(written[0]):
            fields = await expand(written.pop(0), self._value)
            name, _, value = " ".join(field.text for field in fields).partition("=")
            self.environment[name] = value
        words = [text for word in written for text in await self._fields(word)]
        if not command.redirects:
            return await self._run_words(command, words, io)
        redirects = Redirects(self.phone.files, self.environment["PWD"])
        try:
            for redirect in command.redirects:
                target = " ".join(await self._fields(redirect.target))
                io = redirects.apply(redirect, target, io)
            code = await self._run_words(command, words, io)
            redirects.write()
        except BrokenPipeError:
            raise
        except OSError as error:
            io.err(f"sh: {error.filename}: {error.strerror}\n".encode())
            with contextlib.suppress(OSError):  # the first error message is enough
                redirects.write()
            return 1
        return code

    async def _run_words(self, command: ShellCommand, words: list[str], io: CommandIO) -> int:
        if command.group is not None and command.is_subshell:
            return await self.inner(io).run_parsed(command.group)
        if command.group is not None:
            shell = self if io is self.io else replace(self, io=io)
            return await shell._run_list(command.group)
        if not words:
            return 0
        name = words[0].rpartition("/")[2]
        ctx = CommandContext(shell=self, name=name, arguments=words[1:], io=io)
        return await self.execute(ctx, words[0])

    async def _fields(self, word: Word) -> list[str]:
        """Expand one word into the arguments that it stands for."""
        if len(word) == 1 and word[0].kind == "text":
            only = word[0]
            if only.quoted or PATTERN_CHARACTERS.isdisjoint(only.text):
                return [only.text]
        fields = await expand(word, self._value)
        files, folder = self.phone.files, self.environment["PWD"]
        return [path for field in fields for path in field.paths(files, folder)]

    async def _value(self, part: WordPart) -> str:
        if part.kind == "name":
            special = {"?": str(self.code), "$": "2000", "#": "0"}
            return special.get(part.text) or self.environment.get(part.text, "")
        pipe = Pipe()
        io = replace(self.io, out=pipe.write, drain=pipe.drain)
        output = asyncio.create_task(read_to_end(pipe.read))
        try:
            self.code = await self.inner(io).run_parsed(part.script)
            pipe.write_eof()
            return (await output).decode("utf-8", "surrogateescape").rstrip("\n")
        finally:
            output.cancel()


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word[0].text.partition("=")
    return word[0].kind == "text" and not word[0].quoted and bool(equals) and name.isidentifier()
