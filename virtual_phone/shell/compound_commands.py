"""Compound commands of the shell: groups, `if`, loops, `case`, tests and functions."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from virtual_phone.shell.arithmetic import ArithmeticFailure, evaluate
from virtual_phone.shell.conditions import tokens_hold
from virtual_phone.shell.redirects import CommandIO
from virtual_phone.shell.shell_state import ShellFailure, ShellState
from virtual_phone.shell.syntax_tree import (
    Arithmetic,
    Case,
    Conditional,
    For,
    FunctionDefinition,
    Group,
    If,
    Loop,
    Script,
    ShellCommand,
)

COMMANDS_PER_TURN = 32
"""Commands after which other phones get their turn."""
_MAX_CALLS = 30
"""Deepest nesting of functions."""


class LoopJump(Exception):
    """Raised by `break` and `continue`."""

    def __init__(self, levels: int, is_break: bool) -> None:
        super().__init__(levels)
        self.levels = levels
        self.is_break = is_break


class FunctionReturn(Exception):
    """Raised by `return`."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True, kw_only=True)
class CompoundCommands(ShellState):
    """Runs the lists of commands that compound commands consist of."""

    num_loops: int = 0
    """Number of loops that run inside each other."""
    is_condition: bool = False
    """Whether a failure is expected, so that `set -e` ignores it."""
    num_commands: int = 0
    """Number of commands that it has run."""

    num_calls: int = 0
    """Number of functions that run inside each other."""

    @abstractmethod
    async def run_list(self, script: Script) -> int:
        """Run a parsed script; `exit` also ends the enclosing script."""

    @abstractmethod
    async def run_subshell(self, script: Script) -> int:
        """Run a parsed script in a shell of its own; returns its exit code."""

    @abstractmethod
    async def run_command(self, command: ShellCommand, io: CommandIO) -> int:
        """Run a command with these streams; returns its exit code."""

    async def run_compound(self, command: ShellCommand) -> int:
        """Run a compound command; returns its exit code."""
        compound = command.compound
        if isinstance(compound, Group):
            if compound.is_subshell:
                return await self.run_subshell(compound.body)
            return await self.run_list(compound.body)
        if isinstance(compound, If):
            return await self._run_if(compound)
        if isinstance(compound, Loop):
            return await self._run_loop(compound)
        if isinstance(compound, For):
            return await self._run_for(compound)
        if isinstance(compound, Case):
            return await self._run_case(compound)
        if isinstance(compound, FunctionDefinition):
            self.functions[compound.name] = compound.body
            return 0
        if isinstance(compound, Conditional):
            try:
                return int(not await tokens_hold(self, compound.tokens))
            except (ValueError, ArithmeticFailure) as error:
                self.complain(f"[[: {error}: unexpected operator/operand")
                return 2
        assert isinstance(compound, Arithmetic)
        try:
            text = await self.text_of(compound.expression)
            return int(not evaluate(text, self.environment))
        except ArithmeticFailure as error:
            self.complain(str(error))
            return 2

    async def call(self, body: ShellCommand, arguments: Sequence[str], io: CommandIO) -> int:
        """Call a function; returns its exit code."""
        if self.num_calls >= _MAX_CALLS:
            self.complain("functions are nested too deeply")
            raise ShellFailure(1)
        positional, self.positional = self.positional, list(arguments)
        num_loops, self.num_loops = self.num_loops, 0
        self.num_calls += 1
        self.frames.append({})
        try:
            return await self.run_command(body, io)
        except FunctionReturn as end:
            return end.code
        finally:
            self.restore_locals()
            self.num_calls -= 1
            self.positional, self.num_loops = positional, num_loops

    async def _holds(self, condition: Script) -> bool:
        was_condition, self.is_condition = self.is_condition, True
        try:
            return not await self.run_list(condition)
        finally:
            self.is_condition = was_condition

    async def _run_if(self, clause: If) -> int:
        for condition, body in clause.branches:
            if not condition or await self._holds(condition):
                return await self.run_list(body)
        return 0

    async def _run_loop(self, loop: Loop) -> int:
        code = 0
        self.num_loops += 1
        try:
            while await self._holds(loop.condition) != loop.is_until:
                if await self._is_broken(loop.body):
                    break
                code = self.code
        except LoopJump as jump:  # in the condition
            self._leave(jump)
        finally:
            self.num_loops -= 1
        return code

    async def _run_for(self, loop: For) -> int:
        values = list(self.positional)
        if loop.words is not None:
            values = await self.expanded(loop.words)
        self.code = 0
        self.num_loops += 1
        try:
            for value in values:
                self.assign(loop.name, value)
                if await self._is_broken(loop.body):
                    break
        finally:
            self.num_loops -= 1
        return self.code

    async def _is_broken(self, body: Script) -> bool:
        """Run the body of a loop once; returns whether it has ended the loop."""
        try:
            await self.run_list(body)
        except LoopJump as jump:
            return self._leave(jump)
        finally:
            self.num_commands += 1
        if self.num_commands % COMMANDS_PER_TURN == 0:
            await asyncio.sleep(0)
        await self.io.drain()
        return False

    def _leave(self, jump: LoopJump) -> bool:
        self.code = 0
        if jump.levels > 1:
            raise LoopJump(jump.levels - 1, jump.is_break)
        return jump.is_break

    async def _run_case(self, clause: Case) -> int:
        value = await self.text_of(clause.word)
        self.code, falls = 0, False
        for patterns, body, end in clause.arms:
            for pattern in () if falls else patterns:
                if falls := await self.matches(value, pattern):
                    break
            if falls:
                await self.run_list(body)
                if end != ";&":
                    break
        return self.code
