"""Compound commands of the shell: `if`, loops and `case`."""

import asyncio
from abc import abstractmethod
from dataclasses import dataclass

from agentrl.virtual_phone.shell.shell_state import ShellState
from agentrl.virtual_phone.shell.syntax_tree import Case, For, If, Loop, Script

COMMANDS_PER_TURN = 32
"""Commands after which other phones get their turn."""


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

    @abstractmethod
    async def run_list(self, script: Script) -> int:
        """Run a parsed script; `exit` also ends the enclosing script."""

    async def holds(self, condition: Script) -> bool:
        """Whether a condition succeeds."""
        was_condition, self.is_condition = self.is_condition, True
        try:
            return not await self.run_list(condition)
        finally:
            self.is_condition = was_condition

    async def run_if(self, clause: If) -> int:
        """Run an `if`; returns its exit code."""
        for condition, body in clause.branches:
            if not condition or await self.holds(condition):
                return await self.run_list(body)
        return 0

    async def run_loop(self, loop: Loop) -> int:
        """Run a `while` or `until`; returns its exit code."""
        code = 0
        self.num_loops += 1
        try:
            while await self.holds(loop.condition) != loop.is_until:
                if await self._is_broken(loop.body):
                    break
                code = self.code
        except LoopJump as jump:  # in the condition
            self._leave(jump)
        finally:
            self.num_loops -= 1
        return code

    async def run_for(self, loop: For) -> int:
        """Run a `for`; returns its exit code."""
        values = list(self.positional)
        if loop.words is not None:
            values = [text for word in loop.words for text in await self.fields(word)]
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

    async def run_case(self, clause: Case) -> int:
        """Run a `case`; returns its exit code."""
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
