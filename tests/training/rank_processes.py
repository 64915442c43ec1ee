"""Ranks as processes of this machine, forked from one that has imported the learner."""

import multiprocessing
from collections.abc import Callable
from typing import Any

_TOGETHER_S = 200.0


def run_ranks(world: int, target: Callable[..., None], *arguments: Any) -> None:
    """Call `target(*arguments, rank)` in a process for each rank, and wait until all have ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.rank_imports"])
    ranks = [
        context.Process(target=target, args=(*arguments, rank), daemon=True)
        for rank in range(world)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(_TOGETHER_S)
        process.kill()
    assert [process.exitcode for process in ranks] == [0] * world
