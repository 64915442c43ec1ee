"""Pipelines of the shell: commands that run one by one, or together with pipes between them."""

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from virtual_phone.shell.compound_commands import (
    CompoundCommands,
    FunctionReturn,
    LoopJump,
)
from virtual_phone.shell.redirects import CommandIO, Input, never_full
from virtual_phone.shell.shell_state import BUILTINS, ShellExit
from virtual_phone.shell.syntax_tree import Group, Pipeline, ShellCommand
from virtual_phone.system.pipe import Pipe

BROKEN_PIPE = 141
"""Exit code of a command whose reader has ended."""
_FILTERS = frozenset(("grep", "head", "wc"))
"""Commands that end as soon as their input does."""


@dataclass(slots=True, kw_only=True)
class Pipelines(CompoundCommands):
    """Runs the pipelines that lists of commands consist of."""

    commands: Mapping[str, Callable[..., object]]
    """The programs and builtins by name."""

    @abstractmethod
    def inner(self, io: CommandIO) -> Self:
        """A nested shell, which cannot change the variables of this one."""

    async def run_pipeline(self, pipeline: Pipeline) -> int:
        """Run a pipeline in the foreground; returns its exit code."""
        was_condition = self.is_condition
        self.is_condition |= pipeline.negated
        try:
            if len(pipeline.commands) == 1:
                code = await self.run_command(pipeline.commands[0], self.io)
            else:
                code = await self._run_together(pipeline)
        finally:
            self.is_condition = was_condition
        return int(not code) if pipeline.negated else code

    async def _run_together(self, pipeline: Pipeline) -> int:
        """Run the commands of a pipe concurrently."""
        commands = pipeline.commands
        pipes = [Pipe() for _ in commands[1:]]
        ends = zip(commands, [None, *pipes], [*pipes, None], strict=True)
        if self._never_waits(pipeline):  # one after the other: tasks cost more than most commands
            codes = [await self._stage(*stage, is_alone=True) for stage in ends]
            return self._code_of(codes)
        tasks = [asyncio.create_task(self._stage(*stage)) for stage in ends]
        try:
            return self._code_of(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    def _code_of(self, codes: Sequence[int]) -> int:
        failed = [code for code in codes if code] if "pipefail" in self.options else []
        return failed[-1] if failed else codes[-1]

    def _never_waits(self, pipeline: Pipeline) -> bool:
        """Whether the commands of a pipe surely wait for nothing but each other."""
        if pipeline.never_waits is None:
            pipeline.never_waits = not pipeline.background and all(
                self._returns_at_once(command, is_first=not number)
                for number, command in enumerate(pipeline.commands)
            )
        return pipeline.never_waits and not self.functions

    def _returns_at_once(self, command: ShellCommand, *, is_first: bool) -> bool:
        compound = command.compound
        if isinstance(compound, Group) and is_first and not command.redirects:
            return all(map(self._never_waits, compound.body))
        if not command.texts or command.redirects:
            return False
        name = command.texts[0]
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
            read=outer.read if source is None else Input(source.read),
            drain=never_full if is_alone else outer.drain if sink is None else sink.drain,
            others=outer.others,
            terminal=outer.terminal if sink is None else None,
        )
        is_program = is_alone and command.texts and command.texts[0] not in BUILTINS
        shell = self if is_program else self.inner(io)  # which changes nothing
        try:
            return await shell.run_command(command, io)
        except (ShellExit, FunctionReturn) as end:
            return end.code
        except LoopJump:
            return shell.code
        except BrokenPipeError:
            return BROKEN_PIPE
        finally:
            if sink is not None:
                sink.write_eof()
            if source is not None:
                source.close_reader()
