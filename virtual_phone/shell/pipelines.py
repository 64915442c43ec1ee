"""Pipes of the shell: commands whose outputs are the next ones' inputs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from virtual_phone.shell.redirects import CommandIO, Input, never_full
from virtual_phone.system.pipe import Pipe

BROKEN_PIPE = 141
"""Exit code of a command whose reader has ended."""
Stage = Callable[[CommandIO], Awaitable[int]]
"""Runs one command with these streams; returns its exit code."""


async def run_pipe(stages: Sequence[Stage], outer: CommandIO, *, in_turn: bool) -> list[int]:
    """Run commands with pipes between them; returns their exit codes.

    With `in_turn` each one runs to its end before the next: tasks cost more than most commands, so
    that is how commands run that wait for nothing but each other.
    """
    pipes = [Pipe() for _ in stages[1:]]

    async def run(stage: Stage, source: Pipe | None, sink: Pipe | None) -> int:
        io = CommandIO(
            out=outer.out if sink is None else sink.write,
            err=outer.err,
            read=outer.read if source is None else Input(source.read),
            drain=never_full if in_turn else outer.drain if sink is None else sink.drain,
            others=outer.others,
            terminal=outer.terminal if sink is None else None,
        )
        try:
            return await stage(io)
        except BrokenPipeError:
            return BROKEN_PIPE
        finally:
            if sink is not None:
                sink.write_eof()
            if source is not None:  # the command before it gets a broken pipe
                source.close_reader()

    ends = zip(stages, [None, *pipes], [*pipes, None], strict=True)
    if in_turn:
        return [await run(*end) for end in ends]
    tasks = [asyncio.create_task(run(*end)) for end in ends]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
