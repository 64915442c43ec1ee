"""Compare sampling by solve rate with uniform sampling on Sokoban: episodes until a target.

Levels of mixed difficulty on 5x5 boards, from one move to three boxes, in equal shares. Samplers
and environment are the same as in jobs. So that several seeds take only minutes, the policy is a
small network that sees the board around the player, trained from random weights with GRPO's
group-relative advantages of success. Both samplers start from the same weights and are evaluated
on the same held-out boards, sampled as in training.

Run: python benchmarks/curriculum.py
"""

import argparse
import copy
import itertools
import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conditions import conditions
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import agentrl
from agentrl.check.support.sample_steps import sample_turn, scored_episode
from agentrl.config import RolloutConfig, sampler_defaults
from agentrl.envs.sokoban.board import CHARACTERS
from agentrl.training.sampling.task_pool import TaskSet
from agentrl.training.sampling.task_sampler import PlayedTask, TaskSampler, load_sampler

LEVELS: dict[str, dict[str, Any]] = {
    "1 move": {"min_moves": 1, "max_moves": 1},
    "2-3 moves": {"min_moves": 2, "max_moves": 3},
    "4-6 moves": {"min_moves": 4, "max_moves": 6},
    "7-9 moves": {"min_moves": 7, "max_moves": 9},
    "2 boxes": {"boxes": 2},
    "3 boxes": {"boxes": 3},
}
SAMPLERS = ("uniform", "solve_rate")
SHARED = {"size": 5, "max_steps": 20, "deadlock": "end", "held_out_by": "level"}
_SIGHT = 3
"""Number of cells the policy sees in each direction."""
FIRST_HELD_OUT = 1_000_000
EVERY = 5
"""Steps between evaluations."""
_T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Student's t at 97.5%, by degrees of freedom."""


class Boards:
    """Plays many boards at once; each board is generated once and played on copies."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str, int], Any] = {}
        self._made: dict[tuple[str, str], Any] = {}

    @torch.no_grad()
    def play(
        self,
        policy: nn.Module,
        split: str,
        tasks: Sequence[tuple[str, int]],
        draws: torch.Generator,
    ) -> tuple[Tensor, Tensor, Tensor, list[bool]]:
        """Play one episode per task.

        Returns:
            Observations [N, 343], actions [N], episode of each [N], and each episode's success.
        """
        begun = [self._begin(level, split, seed) for level, seed in tasks]
        envs, texts = [env for env, _ in begun], [text for _, text in begun]
        going, solved = list(range(len(tasks))), [False] * len(tasks)
        seen, done, by = [], [], []
        while going:
            shown = encoded([texts[i] for i in going])
            chosen = torch.multinomial(policy(shown).softmax(-1), 1, generator=draws)[:, 0]
            seen.append(shown)
            done.append(chosen)
            by += going
            still = []
            for i, action in zip(going, chosen.tolist(), strict=True):
                texts[i], _, over, truncated, info = envs[i].step(action)
                solved[i] = bool(info["success"])
                if not (over or truncated):
                    still.append(i)
            going = still
        return torch.cat(seen), torch.cat(done), torch.tensor(by), solved

    def _begin(self, level: str, split: str, seed: int) -> tuple[Any, str]:
        """Return an environment at the start of a board, and the board's text."""
        key = (level, split, seed)
        if key not in self._begun:
            if key[:2] not in self._made:
                kwargs = {**SHARED, **LEVELS[level], "split": split}
                self._made[key[:2]] = agentrl.make("Sokoban-v0", **kwargs).unwrapped
            text, _ = self._made[key[:2]].reset(seed=seed)
            self._begun[key] = copy.copy(self._made[key[:2]]), text
        env, text = self._begun[key]
        return copy.copy(env), text  # a shallow copy: steps replace attributes, never modify them


def encoded(boards: Sequence[str]) -> Tensor:
    """Encode which of seven things is in each of the 7 x 7 cells around the player, [N, 343]."""
    views = []
    for board in boards:
        rows = np.array([[*row.encode()] for row in board.split("\n")], np.uint8)
        ((y, x),) = np.argwhere((rows == ord("@")) | (rows == ord("+")))
        views.append(np.pad(rows, _SIGHT, constant_values=ord("#"))[y : y + 7, x : x + 7])
    kinds = np.array([*CHARACTERS.encode()], np.uint8)
    shown = np.stack(views).reshape(len(boards), -1, 1) == kinds
    return torch.from_numpy(shown.astype(np.float32)).flatten(1)


def train(
    name: str, seed: int, options: argparse.Namespace, boards: Boards
) -> list[tuple[int, float]]:
    """Train a policy; return its mean success over all levels by step, from 0."""
    torch.manual_seed(seed)
    width = options.width
    policy = nn.Sequential(
        nn.Linear(343, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
    )
    optimizer = torch.optim.Adam(policy.parameters(), lr=options.lr)
    draws = torch.Generator().manual_seed(seed)
    sampler = opened(name, seed, options)
    curve = [(0, evaluated(policy, options.held_out, boards))]
    for step in range(1, options.steps + 1):
        tasks = sampler.choose(step, options.groups)
        drawn = [(t.env, t.seed % options.boards) for t in tasks if isinstance(t.seed, int)]
        members = [one for one in drawn for _ in range(options.group_size)]
        seen, done, by, solved = boards.play(policy, "train", members, draws)
        rewards = torch.tensor(solved).float().view(len(tasks), -1)
        spread = rewards.std(-1, keepdim=True) + 1e-6
        advantages = ((rewards - rewards.mean(-1, keepdim=True)) / spread).flatten()[by]
        update(policy, optimizer, seen, done, advantages, options)
        sampler.observe(step, [
            PlayedTask(task=task, episodes=[
                scored_episode([sample_turn(1, None)], [reward]) for reward in own
            ])
            for task, own in zip(tasks, rewards.tolist(), strict=True)
        ])  # fmt: skip
        if step % EVERY == 0:
            curve.append((step, evaluated(policy, options.held_out, boards)))
    return curve


def update(
    policy: nn.Module,
    optimizer: torch.optim.Optimizer,
    seen: Tensor,
    done: Tensor,
    advantages: Tensor,
    options: argparse.Namespace,
) -> None:
    """Make a few passes of GRPO's clipped objective over all moves of a step."""
    old = None
    for _ in range(options.epochs):
        logprobs = policy(seen).log_softmax(-1)
        chosen = logprobs.gather(1, done[:, None])[:, 0]
        old = chosen.detach() if old is None else old
        ratio = (chosen - old).exp()
        bounded = torch.minimum(advantages * ratio, advantages * ratio.clamp(0.8, 1.2))
        entropy = -(logprobs.exp() * logprobs).sum(-1).mean()
        optimizer.zero_grad()
        (-bounded.mean() - options.entropy * entropy).backward()
        optimizer.step()


def opened(name: str, seed: int, options: argparse.Namespace) -> TaskSampler:
    """Create a sampler of levels."""
    config = sampler_defaults(name)
    config.success_at = 1.0
    sets = [TaskSet(env=level, weight=1 / len(LEVELS), count=None) for level in LEVELS]
    rollout = RolloutConfig(groups=options.groups, group_size=options.group_size)
    return load_sampler(config, sets, rollout, run_seed=seed, folder=Path("unused"))


def evaluated(policy: nn.Module, count: int, boards: Boards) -> float:
    """Return the mean success over the levels on held-out boards, always with the same draws."""
    tasks = [(level, FIRST_HELD_OUT + k) for level in LEVELS for k in range(count)]
    return statistics.fmean(boards.play(policy, "eval", tasks, torch.Generator().manual_seed(0))[3])


def reached(curve: Sequence[tuple[int, float]], target: float) -> int | None:
    """Return the first step at which two consecutive evaluations average at least the target."""
    for (_, before), (step, value) in itertools.pairwise(curve):
        if (before + value) / 2 >= target:
            return step
    return None


def interval(values: Sequence[float], digits: int) -> str:
    """Format the mean and the 95% interval (Student's t)."""
    mean, count = statistics.fmean(values), len(values)
    if count - 1 not in _T_95:
        return f"{mean:+,.{digits}f}"
    half = _T_95[count - 1] * statistics.stdev(values) / math.sqrt(count)
    low, high = mean - half, mean + half
    return f"{mean:+,.{digits}f} ({low:+,.{digits}f} to {high:+,.{digits}f})"


def main() -> None:
    """Train and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--groups", type=int, default=12)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--boards", type=int, default=400, help="training boards per level")
    parser.add_argument("--held-out", type=int, default=50, help="held-out boards per level")
    parser.add_argument("--target", type=float, default=0.6, help="mean success over all levels")
    parser.add_argument("--epochs", type=int, default=6, help="passes over the moves of a step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument(
        "--entropy", type=float, default=0.01, help="coefficient of the entropy bonus"
    )
    parser.add_argument("--width", type=int, default=256)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(conditions("torch", "gymnasium"), flush=True)
    boards, needed = Boards(), f"episodes to {options.target:g}"
    table = Table("seed", "sampler", "success after", needed, "minutes")
    steps: dict[str, list[int | None]] = {name: [] for name in SAMPLERS}
    after: dict[str, list[float]] = {name: [] for name in SAMPLERS}
    for seed, name in itertools.product(range(options.seeds), SAMPLERS):
        started = time.perf_counter()
        curve = train(name, seed, options, boards)
        step = reached(curve, options.target)
        steps[name].append(step)
        after[name].append(statistics.fmean(value for _, value in curve[-5:]))
        episodes = "not reached" if step is None else f"{step * size_of(options):,}"
        minutes = f"{(time.perf_counter() - started) / 60:.1f}"
        table.add_row(str(seed), name, f"{after[name][-1]:.3f}", episodes, minutes)
        print(f"seed {seed}, {name}: {[round(value, 2) for _, value in curve[::4]]}", flush=True)
    Console(width=100).print(table)
    compare(steps, after, options)


def size_of(options: argparse.Namespace) -> int:
    """Return the number of episodes per training step."""
    return int(options.groups * options.group_size)


def compare(
    steps: dict[str, list[int | None]], after: dict[str, list[float]], options: argparse.Namespace
) -> None:
    """Print the paired differences, seed by seed, and their 95% intervals."""
    uniform, own = (steps[name] for name in SAMPLERS)
    # A run that never reached the target needed at least all of its episodes.
    pairs = [
        (options.steps if a is None else a, options.steps if b is None else b)
        for a, b in zip(uniform, own, strict=True)
    ]
    saved = [float(size_of(options) * (b - a)) for a, b in pairs]
    gained = [b - a for a, b in zip(*(after[name] for name in SAMPLERS), strict=True)]
    print(f"episodes to the target, solve_rate minus uniform: {interval(saved, 0)}")
    print(f"success after training, solve_rate minus uniform: {interval(gained, 3)}")


if __name__ == "__main__":
    main()
