"""The phone's shell: runs scripts with the commands of a table."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentrl.phone.lexer import Command, Part, Pipeline, ShellSyntaxError, Word, parse

if TYPE_CHECKING:
    from agentrl.phone.phone import Phone

Write = Callable[[bytes | memoryview], None]
Read = Callable[[], Awaitable[bytes]]
"""Gives what comes next on standard input, empty at its end."""


@dataclass(slots=True, kw_only=True)
class Call:
    """One call of a command: what it is given and where its output goes."""

    phone: "Phone"
    name: str
    arguments: list[str]
    out: Write
    err: Write
    read: Read
    environment: dict[str, str]

    def say(self, text: str) -> int:
        """Write a line and succeed."""
        self.out(f"{text}\n".encode("utf-8", "surrogateescape"))
        return 0

    def fail(self, text: str, code: int = 1) -> int:
        """Complain and fail."""
        self.err(f"{text}\n".encode("utf-8", "surrogateescape"))
        return code

    async def read_all(self) -> bytes:
        """Standard input until its end."""
        chunks = []
        while chunk := await self.read():
            chunks.append(chunk)
        return b"".join(chunks)


Run = Callable[[Call], "int | Awaitable[int]"]
"""A command: gives its exit code."""


async def no_input() -> bytes:
    """Standard input of a command that has none."""
    return b""


def _discard(data: bytes | memoryview) -> None:
    """`/dev/null`."""


class Exit(Exception):
    """`exit` was called."""

    def __init__(self, code: int) -> None:
        """End the script with an exit code."""
        super().__init__(code)
        self.code = code


@dataclass(slots=True, kw_only=True)
class Shell:
    """One shell; `$?` and exported names live as long as it does."""

    phone: "Phone"
    commands: Mapping[str, Run]
    out: Write
    err: Write
    read: Read = no_input
    environment: dict[str, str] = field(default_factory=dict)
    code: int = 0

    async def run(self, script: str) -> int:
        """Run a script; its exit code."""
        try:
            pipelines = parse(script)
        except ShellSyntaxError as error:
            self.err(f"sh: {error}\n".encode("utf-8", "surrogateescape"))
            self.code = 1
            return 1
        try:
            for pipeline in pipelines:
                if pipeline.joint == ";" or (pipeline.joint == "&&") == (self.code == 0):
                    self.code = await self._run_pipeline(pipeline)
        except Exit as end:
            self.code = end.code
        return self.code

    async def _run_pipeline(self, pipeline: Pipeline) -> int:
        read = self.read
        *inner, last = pipeline.commands
        for command in inner:
            output: list[bytes | memoryview] = []
            await self._run_command(command, read, output.append)
            read = _from_chunks([b"".join(output)])
        return await self._run_command(last, read, self.out)

    async def _run_command(self, command: Command, read: Read, out: Write) -> int:
        written = list(command.words)
        while written and _is_assignment(written[0]):
            name, _, value = " ".join(await self._expand(written.pop(0))).partition("=")
            self.environment[name] = value
        words = [text for word in written for text in await self._expand(word)]
        files: list[tuple[str, list[bytes | memoryview]]] = []
        try:
            read, out, err = await self._redirect(command, read, out, files)
        except OSError as error:
            self.err(f"sh: can't open {error.filename}: {error.strerror}\n".encode())
            return 1
        if not words:
            code = 0
        else:
            call = Call(
                phone=self.phone,
                name=words[0].rpartition("/")[2],
                arguments=words[1:],
                out=out,
                err=err,
                read=read,
                environment=self.environment,
            )
            code = await self.execute(call, words[0])
        for path, chunks in files:
            self.phone.files.write(path, b"".join(chunks))
        return code

    async def execute(self, call: Call, spelled: str) -> int:
        """Run one command by its name."""
        if call.name == "exec" and call.arguments:
            spelled, *call.arguments = call.arguments
            call.name = spelled.rpartition("/")[2]
        run = self.commands.get(call.name)
        if run is None:
            return call.fail(f"sh: {spelled}: inaccessible or not found", 127)
        self.phone.seen_commands.append((call.name, *call.arguments))
        result = run(call)
        return await result if inspect.isawaitable(result) else result

    async def _redirect(
        self,
        command: Command,
        read: Read,
        out: Write,
        files: list[tuple[str, list[bytes | memoryview]]],
    ) -> tuple[Read, Write, Write]:
        writes = {1: out, 2: self.err}
        for redirect in command.redirects:
            target = " ".join(await self._expand(redirect.target))
            if redirect.operator == ">&":
                writes[redirect.fd] = writes.get(int(target), _discard)
            elif redirect.operator == "<":
                content = b"" if target == "/dev/null" else self.phone.files.read(target)
                read = _from_chunks([content])
            elif target == "/dev/null":
                writes[redirect.fd] = _discard
            else:
                old = self.phone.files.find(target) if redirect.operator == ">>" else None
                content = (old.content or b"") if old is not None else b""
                self.phone.files.write(target, content)
                chunks: list[bytes | memoryview] = [content]
                files.append((target, chunks))
                writes[redirect.fd] = chunks.append
        return read, writes[1], writes[2]

    async def _expand(self, word: Word) -> list[str]:
        """The words that a word becomes: variables and scripts replaced, split at spaces."""
        words: list[str] = []
        text: str | None = None
        for part in word:
            value = await self._value(part)
            if part.quoted or part.kind == "text":
                text = (text or "") + value
                continue
            pieces = value.split()
            if not pieces:
                continue
            if value[0].isspace() and text is not None:
                words.append(text)
                text = None
            words += [(text or "") + pieces[0], *pieces[1:]]
            text = None if value[-1].isspace() else words.pop()
        return words if text is None else [*words, text]

    async def _value(self, part: Part) -> str:
        if part.kind == "text":
            return part.text
        if part.kind == "name":
            return str(self.code) if part.text == "?" else self.environment.get(part.text, "")
        output: list[bytes | memoryview] = []
        inner = Shell(
            phone=self.phone,
            commands=self.commands,
            out=output.append,
            err=self.err,
            environment=dict(self.environment),
        )
        await inner.run(part.text)
        return b"".join(output).decode("utf-8", "surrogateescape").rstrip("\n")


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word[0].text.partition("=")
    return word[0].kind == "text" and not word[0].quoted and bool(equals) and name.isidentifier()


def _from_chunks(chunks: list[bytes]) -> Read:
    async def read() -> bytes:
        return chunks.pop(0) if chunks else b""

    return read
