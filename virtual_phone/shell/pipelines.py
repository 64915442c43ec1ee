"""Shell pipelines: the output of each command is the input of the next command."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence

from virtual_phone.shell.command_streams import CommandIO, Input, never_full
from virtual_phone.shell.shell_state import (
    BUILTINS,
    FunctionReturn,
    LoopJump,
    ShellExit,
    ShellState,
)
from virtual_phone.shell.syntax_tree import Group, Pipeline, ShellCommand
from virtual_phone.system.byte_channels import Pipe

BROKEN_PIPE = 141
"""Exit code of a command whose reader has exited."""
_FILTERS = frozenset(("grep", "head", "wc"))
"""Commands that end as soon as their input ends."""
_RunCommand = Callable[[ShellCommand, CommandIO], Awaitable[int]]


class Pipelines:
    """Runs the commands of a pipeline concurrently, each in a separate shell."""

    def __init__(
        self,
        state: ShellState,
        commands: Mapping[str, Callable[..., object]],
        run_here: _RunCommand,
        run_apart: _RunCommand,
    ) -> None:
        self._state = state
        self._commands = commands
        self._run_here = run_here
        # Runs a command in a nested shell.
        self._run_apart = run_apart

    async def run(self, pipeline: Pipeline) -> int:
        """Run a pipeline in the foreground; return its exit code."""
        state, commands = self._state, pipeline.commands
        was_condition = state.is_condition
        state.is_condition |= pipeline.negated
        try:
            if len(commands) == 1:
                code = await self._run_here(commands[0], state.io)
            else:
                codes = await self._run_pipe(commands, in_turn=self._never_waits(pipeline))
                failed = [code for code in codes if code] if "pipefail" in state.options else []
                code = failed[-1] if failed else codes[-1]
        finally:
            state.is_condition = was_condition
        return int(not code) if pipeline.negated else code

    async def _run_pipe(self, commands: Sequence[ShellCommand], *, in_turn: bool) -> list[int]:
        """Run commands connected by pipes; return their exit codes.

        With `in_turn`, each command runs to its end before the next command starts. Since tasks
        cost more than most commands, this is how commands run that only wait for each other.
        """
        outer, pipes = self._state.io, [Pipe() for _ in commands[1:]]

        async def run(command: ShellCommand, source: Pipe | None, sink: Pipe | None) -> int:
            io = CommandIO(
                out=outer.out if sink is None else sink.write,
                err=outer.err,
                read=outer.read if source is None else Input(source.read),
                drain=never_full if in_turn else outer.drain if sink is None else sink.drain,
                others=outer.others,
                terminal=outer.terminal if sink is None else None,
            )
            # A program that runs alone cannot change this shell.
            is_program = in_turn and command.texts and command.texts[0] not in BUILTINS
            try:
                return await (self._run_here if is_program else self._run_apart)(command, io)
            except (ShellExit, FunctionReturn) as end:
                return end.code
            except LoopJump:
                return 0
            except BrokenPipeError:
                return BROKEN_PIPE
            finally:
                if sink is not None:
                    sink.write_eof()
                if source is not None:  # the preceding command gets a broken pipe
                    source.close_reader()

        ends = zip(commands, [None, *pipes], [*pipes, None], strict=True)
        if in_turn:
            return [await run(*end) for end in ends]
        tasks = [asyncio.create_task(run(*end)) for end in ends]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def _never_waits(self, pipeline: Pipeline) -> bool:
        """Return whether the commands of a pipeline certainly wait only for each other."""
        if pipeline.never_waits is None:
            pipeline.never_waits = not pipeline.background and all(
                self._returns_at_once(command, is_first=not number)
                for number, command in enumerate(pipeline.commands)
            )
        return pipeline.never_waits and not self._state.functions

    def _returns_at_once(self, command: ShellCommand, *, is_first: bool) -> bool:
        compound = command.compound
        if isinstance(compound, Group) and is_first and not command.redirects:
            return all(map(self._never_waits, compound.body))
        if not command.texts or command.redirects:
            return False
        name = command.texts[0]
        known = self._commands.get(name)
        is_function = known is not None and not inspect.iscoroutinefunction(known)
        return is_function or (name in _FILTERS and not is_first)
