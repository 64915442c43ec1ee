"""The phone's shell: runs scripts with the commands of a table."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agentrl.virtual_phone.shell.command_context import Call, Run, all_of
from agentrl.virtual_phone.shell.expansion import MAGIC, expand
from agentrl.virtual_phone.shell.lexer import DEEPEST, Part, ShellSyntaxError, Word
from agentrl.virtual_phone.shell.redirects import IO, Redirects
from agentrl.virtual_phone.shell.shell_parser import Command, Pipeline, Script, parse
from agentrl.virtual_phone.system.pipe import Pipe

if TYPE_CHECKING:
    from agentrl.virtual_phone.phone import Phone

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
_COMMANDS_AT_ONE_GO = 32
"""Then other phones have their turn."""


class Exit(Exception):
    """`exit` was called."""

    def __init__(self, code: int) -> None:
        """End the script with an exit code."""
        super().__init__(code)
        self.code = code


@dataclass(slots=True, kw_only=True)
class Shell:
    """One shell; `$?` and its variables live as long as it does."""

    phone: "Phone"
    commands: Mapping[str, Run]
    io: IO
    environment: dict[str, str] = field(default_factory=_ENVIRONMENT.copy)
    code: int = 0
    depth: int = 0
    """Shells that wait for this one."""

    async def run(self, script: str) -> int:
        """Run a script; its exit code."""
        try:
            if self.depth > DEEPEST:
                raise ShellSyntaxError("nested too deeply")
            pipelines = parse(script)
        except ShellSyntaxError as error:
            self.io.err(f"sh: {error}\n".encode("utf-8", "surrogateescape"))
            self.code = 1
            return 1
        return await self.run_parsed(pipelines)

    async def run_parsed(self, script: Script) -> int:
        """Run a script that was read before; its exit code."""
        try:
            await self._run_list(script)
        except Exit as end:
            self.code = end.code
        return self.code

    async def _run_list(self, script: Script) -> int:
        """As `run_parsed`, but `exit` ends what is around it, too."""
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
                if number % _COMMANDS_AT_ONE_GO == 0:
                    await asyncio.sleep(0)
            # As adbd does: the connection stays while something can still write to it.
            await asyncio.gather(*background)
        finally:
            for task in background:
                task.cancel()
        return self.code

    def inner(self, io: IO) -> "Shell":
        """A shell for a part of the script: it cannot change the variables of this one."""
        environment = dict(self.environment)
        return replace(self, io=io, environment=environment, depth=self.depth + 1)

    async def execute(self, call: Call, spelled: str) -> int:
        """Run one command by its name."""
        if call.name == "exec" and call.arguments:
            spelled, *call.arguments = call.arguments
            call.name = spelled.rpartition("/")[2]
        run = self.commands.get(call.name)
        if run is None:
            return call.fail(f"sh: {spelled}: inaccessible or not found", 127)
        self.phone.seen_commands.add((call.name, *call.arguments))
        try:
            result = run(call)
            return result if isinstance(result, int) else await result
        except BrokenPipeError:
            raise
        except OSError as error:
            where = "" if error.filename is None else f"{error.filename}: "
            return call.fail(f"{call.name}: {where}{error.strerror}")

    async def _run_pipeline(self, pipeline: Pipeline) -> int:
        if len(pipeline.commands) == 1:
            code = await self._run_command(pipeline.commands[0], self.io)
        else:
            code = await self._run_together(pipeline.commands)
        return int(not code) if pipeline.negated else code

    async def _run_together(self, commands: list[Command]) -> int:
        """Run commands at the same time, each reading what the one before it writes."""
        pipes = [Pipe() for _ in commands[1:]]
        ends = zip(commands, [None, *pipes], [*pipes, None], strict=True)
        tasks = [asyncio.create_task(self._stage(*one)) for one in ends]
        try:
            return (await asyncio.gather(*tasks))[-1]
        finally:
            for task in tasks:
                task.cancel()

    async def _stage(self, command: Command, source: Pipe | None, sink: Pipe | None) -> int:
        """One command of several; nobody before it needs to write once it has ended."""
        io = self.io if source is None else replace(self.io, read=source.read)
        if sink is not None:
            io = replace(io, out=sink.write, drained=sink.drained)
        try:
            return await self.inner(io)._run_command(command, io)
        except Exit as end:
            return end.code
        except BrokenPipeError:
            return _BROKEN_PIPE
        finally:
            if sink is not None:
                sink.finish()
            if source is not None:
                source.leave()

    async def _run_command(self, command: Command, io: IO) -> int:
        written = list(command.words)
        while written and _is_assignment(written[0]):
            fields = await expand(written.pop(0), self._value)
            name, _, value = " ".join(one.text for one in fields).partition("=")
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
            with contextlib.suppress(OSError):  # the first complaint is enough
                redirects.write()
            return 1
        return code

    async def _run_words(self, command: Command, words: list[str], io: IO) -> int:
        if command.group is not None and command.is_subshell:
            return await self.inner(io).run_parsed(command.group)
        if command.group is not None:
            return await replace(self, io=io)._run_list(command.group)
        if not words:
            return 0
        name = words[0].rpartition("/")[2]
        call = Call(shell=self, name=name, arguments=words[1:], io=io)
        return await self.execute(call, words[0])

    async def _fields(self, word: Word) -> list[str]:
        """The words that a word becomes."""
        if len(word) == 1 and word[0].kind == "text":
            only = word[0]
            if only.quoted or MAGIC.isdisjoint(only.text):
                return [only.text]
        fields = await expand(word, self._value)
        files, folder = self.phone.files, self.environment["PWD"]
        return [path for one in fields for path in one.paths(files, folder)]

    async def _value(self, part: Part) -> str:
        if part.kind == "name":
            special = {"?": str(self.code), "$": "2000", "#": "0"}
            return special.get(part.text) or self.environment.get(part.text, "")
        pipe = Pipe()
        io = replace(self.io, out=pipe.write, drained=pipe.drained)
        output = asyncio.create_task(all_of(pipe.read))
        try:
            self.code = await self.inner(io).run_parsed(part.script)
            pipe.finish()
            return (await output).decode("utf-8", "surrogateescape").rstrip("\n")
        finally:
            output.cancel()


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word[0].text.partition("=")
    return word[0].kind == "text" and not word[0].quoted and bool(equals) and name.isidentifier()
