"""Loops, conditions and the other compound commands of the shell."""

from collections.abc import Awaitable, Callable

from virtual_phone.shell.arithmetic import ArithmeticFailure, evaluate
from virtual_phone.shell.conditions import tokens_hold
from virtual_phone.shell.glob_patterns import compile_glob
from virtual_phone.shell.shell_state import LoopJump, ShellState
from virtual_phone.shell.syntax_tree import (
    Arithmetic,
    Case,
    Compound,
    Conditional,
    For,
    FunctionDefinition,
    Group,
    If,
    Loop,
    Script,
)
from virtual_phone.shell.word_expander import WordExpander

RunScript = Callable[[Script], Awaitable[int]]


class CompoundCommands:
    """Runs compound commands, whose parts are themselves scripts."""

    def __init__(
        self,
        state: ShellState,
        words: WordExpander,
        run_list: RunScript,
        run_apart: RunScript,
    ) -> None:
        self._state = state
        self._words = words
        self._run_list = run_list
        # Runs a script in a subshell, for `( ... )`.
        self._run_apart = run_apart

    async def run(self, compound: Compound) -> int:
        """Run a compound command; return its exit code."""
        match compound:
            case Group():
                run = self._run_apart if compound.is_subshell else self._run_list
                return await run(compound.body)
            case If():
                for condition, body in compound.branches:
                    if not condition or await self._holds(condition):
                        return await self._run_list(body)
                return 0
            case Loop():
                return await self._run_loop(compound)
            case For():
                return await self._run_for(compound)
            case Case():
                return await self._run_case(compound)
            case FunctionDefinition():
                self._state.functions[compound.name] = compound.body
                return 0
            case Conditional():
                try:
                    return int(not await tokens_hold(self._state, self._words, compound.tokens))
                except (ValueError, ArithmeticFailure) as error:
                    self._state.complain(f"[[: {error}: unexpected operator/operand")
            case Arithmetic():
                try:
                    text = await self._words.text_of(compound.expression)
                    return int(not evaluate(text, self._state.environment))
                except ArithmeticFailure as error:
                    self._state.complain(str(error))
        return 2

    async def _holds(self, condition: Script) -> bool:
        was_condition, self._state.is_condition = self._state.is_condition, True
        try:
            return not await self._run_list(condition)
        finally:
            self._state.is_condition = was_condition

    async def _run_loop(self, loop: Loop) -> int:
        code = 0
        self._state.num_loops += 1
        try:
            while await self._holds(loop.condition) != loop.is_until:
                if await self._is_broken(loop.body):
                    break
                code = self._state.code
        except LoopJump as jump:  # raised by the condition
            self._leave(jump)
        finally:
            self._state.num_loops -= 1
        return code

    async def _run_for(self, loop: For) -> int:
        state, values = self._state, list(self._state.positional)
        if loop.words is not None:
            values = await self._words.expanded(loop.words)
        state.code = 0
        state.num_loops += 1
        try:
            for value in values:
                state.assign(loop.name, value)
                if await self._is_broken(loop.body):
                    break
        finally:
            state.num_loops -= 1
        return state.code

    async def _is_broken(self, body: Script) -> bool:
        """Run the body of a loop once; return whether it ended the loop."""
        try:
            await self._run_list(body)
        except LoopJump as jump:
            return self._leave(jump)
        await self._state.io.drain()  # wait for the reader of the loop's output
        return False

    def _leave(self, jump: LoopJump) -> bool:
        self._state.code = 0
        if jump.levels > 1:
            raise LoopJump(jump.levels - 1, jump.is_break)
        return jump.is_break

    async def _run_case(self, clause: Case) -> int:
        value = await self._words.text_of(clause.word)
        self._state.code = 0
        for patterns, body in clause.arms:
            for pattern in patterns:
                glob = compile_glob((await self._words.field_of(pattern)).pattern)
                if glob.match(value):
                    await self._run_list(body)
                    return self._state.code
        return self._state.code
