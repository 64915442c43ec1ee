"""Play on phones that fail in every possible way (python benchmarks/chaos.py).

The expert plays number games on virtual phones, through the real adb server and the device pool,
while every fault that a virtual phone can simulate comes and goes on the schedule in `chaos.yaml`.
The benchmark prints the outcomes of the requested games and checks that

- no game is lost or counted twice,
- no game has a screen or a reward that the game itself did not produce: each finished game is
  replayed, touch by touch, in this process, and every screen is compared pixel by pixel,
- every phone that can recover does so,
- no call to a phone exceeds its deadline by more than a second,
- memory does not grow.

Exits with 1 if a check fails.
"""

import argparse
import asyncio
import ctypes
import functools
import gc
import logging
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from conditions import conditions
from rich.console import Console
from rich.table import Table

from agentrl import config as configuration
from agentrl.config import Config
from agentrl.devices import DevicePool, Tap
from agentrl.devices.adb_phone import AdbPhone
from agentrl.envs.android.number_game.app import NumberGameApp
from agentrl.envs.android.number_game.game_state import STAKE
from agentrl.policies.configured_image_size import open_scaler
from agentrl.policies.scripted_policy import ScriptedPolicy
from agentrl.rollout.collector import CollectionProgress, Collector
from agentrl.rollout.env_pool import open_env_pool
from agentrl.rollout.environments.load_translator_and_players import load_player
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rewards.scoring import RewardFunctions, score_or_void
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.run_episode import EpisodeLimits, EpisodeRequest, run_episode
from agentrl.types import Episode, Image, ScoredEpisode
from virtual_phone import spawn
from virtual_phone.system.screen_frame import bar_height

FAULTS = Path(__file__).with_suffix(".yaml")
_DEADLINES = {"screenshot": "frame_s", "launch": "launch_s", "reconnect": "connect_s"}
_CALLS = (
    "screenshot", "perform", "launch", "stop", "focus", "app_state", "look",
    "send_action", "shell", "batch", "reboot", "reconnect",
)  # fmt: skip
_LATE_S = 1.0
_RETURN_S = 60.0
"""Time for quarantined phones to return after the last game."""
_MOST_GROWTH = 0.1
_MOST_TOLD = 20
_FEWEST_LOOKS = 8
"""Rounds before memory is compared: until then, code and data are still being loaded."""


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Outcomes of the requested games."""

    asked: int = 0
    finished: int = 0
    attempts: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    void: Counter[str] = field(default_factory=Counter)
    screens: int = 0
    wrong_screens: list[str] = field(default_factory=list)
    wrong_rewards: list[str] = field(default_factory=list)
    never_back: list[str] = field(default_factory=list)
    """Phones still in quarantine at the end."""


class Watch:
    """Times every call to every phone against its deadline."""

    def __init__(self) -> None:
        self.calls = 0
        self.worst_s = 0.0
        self.worst = ""
        self._lock = threading.Lock()
        for name in _CALLS:
            self._wrap(name)

    def _wrap(self, name: str) -> None:
        inner = getattr(AdbPhone, name)

        @functools.wraps(inner)
        def timed(phone: AdbPhone, *arguments: Any, **keywords: Any) -> Any:
            start = time.monotonic()
            try:
                return inner(phone, *arguments, **keywords)
            finally:
                deadline_s = getattr(phone.deadlines, _DEADLINES.get(name, "command_s"))
                if name in ("perform", "send_action") and not isinstance(arguments[0], Tap):
                    deadline_s += getattr(arguments[0], "seconds", 0.0) + deadline_s
                self._count(f"{name} on {phone.serial}", time.monotonic() - start - deadline_s)

        setattr(AdbPhone, name, timed)

    def _count(self, what: str, over_s: float) -> None:
        with self._lock:
            self.calls += 1
            if over_s > self.worst_s:
                self.worst_s, self.worst = over_s, what


class Memory:
    """Memory of the processes in MB, sampled between rounds of games."""

    def __init__(self, **pids: int) -> None:
        self._pids = pids
        self.seen: dict[str, list[float]] = {name: [] for name in pids}

    def look(self) -> None:
        """Take a sample, after returning memory that the C library has cached."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        for name, pid in self._pids.items():
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            self.seen[name].append(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)

    def growth(self, name: str) -> tuple[float, float]:
        """Return the medians over the second and the last quarter of the rounds."""
        seen = self.seen[name]
        quarter = max(1, len(seen) // 4)
        return statistics.median(seen[quarter : 2 * quarter] or seen), statistics.median(
            seen[-quarter:]
        )


async def main() -> int:
    """Play for the requested time and print the results; return the exit code."""
    options = _options()
    console = Console()
    console.print(conditions("adbutils", "opencv-python-headless"), highlight=False, soft_wrap=True)
    logging.getLogger("agentrl").setLevel(logging.ERROR)
    with spawn(
        options.phones,
        ["agentrl.envs.android.number_game.app:NumberGameApp"],
        tempo="quick",
        effect_delay_ms=(0, 50),
        seed=options.seed,
        faults=options.faults,
    ) as phones:
        config = configuration.load(
            "number_game",
            [
                f"seed={options.seed}",
                f"devices.source=[{','.join(phones.serials)}]",
                f"rollout.concurrency={options.phones}",
                "devices.capture=raw",
                "devices.input=shell",
                "devices.deadlines.connect_s=10",
                "devices.deadlines.command_s=2",
                "devices.deadlines.frame_s=2",
                "devices.deadlines.launch_s=8",
                "devices.quarantine_s=2",
                "devices.reboot=true",
                "rollout.deadline_s=60",
            ],
        )
        watch, memory = Watch(), Memory(here=os.getpid(), phones=phones.pid)
        ledger, stats = await _play(config, 60 * options.minutes, console, memory)
    return _tell(console, ledger, stats, watch, memory)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phones", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=Path, default=FAULTS, help="schedule of the faults")
    return parser.parse_args()


async def _play(
    config: Config, seconds: float, console: Console, memory: Memory
) -> tuple[Ledger, Sequence[Any]]:
    """Play rounds of games until the time is up."""
    ledger, end = Ledger(), time.monotonic() + seconds
    env_pool = open_env_pool(plan_rollouts(config), _fingerprint, (0, 1))
    expert = load_player(resolve_env(config.env), "expert")
    policy = ScriptedPolicy(expert, scale=open_scaler(config.model))
    limits = EpisodeLimits(max_turns=config.env.max_turns, deadline_s=config.rollout.deadline_s)
    played: Counter[str] = Counter()
    rewards = RewardFunctions(config.rewards, config.rollout.reward_deadline_s)

    class Worker:
        number, room = 0, (env_pool.count, env_pool.count)

        async def wait_until_ready(self) -> bool:
            return True

        async def play_request(
            self, request: EpisodeRequest, player: str | None, greedy: bool
        ) -> ScoredEpisode:
            def act(world: Any) -> Any:
                return run_episode(request, config.env.id, world, policy, request.seed, limits)

            episode = await env_pool.run_in_env(act)
            scored, _ = await score_or_void(rewards.score_async, episode)
            count(request, scored)
            return scored

    def count(request: EpisodeRequest, scored: ScoredEpisode) -> None:
        ledger.attempts += 1
        episode = scored.episode
        if episode.outcome.void:
            ledger.void[episode.cause or "?"] += 1
        else:
            played[_name(request)] += 1
            _check(ledger, episode, config)

    try:
        for step in range(1, 10**6):
            requests = _requests(step, 2 * config.rollout.concurrency)
            ledger.asked += len(requests)
            collector = Collector(requests, 10**6, CollectionProgress())
            finished = await collector.collect_from([Worker()])
            ledger.finished += sum(not scored.episode.outcome.void for scored in finished)
            ledger.lost += [_name(t) for t in requests if not played[_name(t)]]
            del collector, finished
            memory.look()
            _show_progress(console, ledger, end)
            if time.monotonic() >= end:
                break
        ledger.twice = [name for name, count in played.items() if count > 1]
        pool: DevicePool = env_pool.pool  # type: ignore[attr-defined]
        stats = pool.stats()
        ledger.never_back = await _never_back(pool)
        return ledger, stats
    finally:
        rewards.close()
        env_pool.close()


def _show_progress(console: Console, ledger: Ledger, end: float) -> None:
    """Print how the games are going, and the seconds until `end`."""
    left = max(0.0, end - time.monotonic())
    games = f"{ledger.finished} of {ledger.asked} games, {ledger.void.total()} void"
    console.print(f"{left:4.0f} s left: {games}", highlight=False)


def _requests(step: int, count: int) -> list[EpisodeRequest]:
    """Return the games of a round, each with its own seed."""
    return [
        EpisodeRequest(split="eval", step=step, group=n, member=0, seed=10**6 * step + n, label="")
        for n in range(count)
    ]


async def _never_back(pool: DevicePool) -> list[str]:
    """Return the quarantined phones that do not come back in time."""
    until = time.monotonic() + _RETURN_S
    aside = {row.serial for row in pool.stats() if row.quarantined}
    # Each phone has to come back once, because faults continue in the meantime.
    while aside and time.monotonic() < until:
        await asyncio.sleep(0.2)
        aside &= {row.serial for row in pool.stats() if row.quarantined}
    return sorted(aside)


def _name(request: EpisodeRequest) -> str:
    return f"{request.step}/{request.group}"


def _fingerprint(frame: Image) -> str:
    """Hash the game's area, without the status bar and its clock."""
    height, width = frame.shape[:2]
    area = np.ascontiguousarray(frame[bar_height(height) :])
    return f"{width}x{height} {xxhash.xxh64_hexdigest(area.tobytes())}"


def _check(ledger: Ledger, episode: Episode, config: Config) -> None:
    """Replay a finished game, touch by touch, and compare screens and rewards."""
    upright = tuple(config.devices.size)
    app = NumberGameApp()
    app.launch({"seed": str(episode.seed)})
    drawn: dict[str, int] = {}
    for number, turn in enumerate(episode.turns):
        ledger.screens += 1
        (seen,) = turn.frames
        width, height = map(int, seen.split()[0].split("x"))
        bar = bar_height(height)
        picture = xxhash.xxh64_hexdigest(app.render(width, height - bar).tobytes())
        expected = f"{width}x{height} {picture}"
        # A rotated phone shows the same game in landscape.
        is_whole = (width, height) in (upright, upright[::-1])
        where = f"{episode.id}, turn {number} on {episode.device}"
        if not is_whole or seen != expected:
            of = drawn.get(seen)
            whose = "not a screen of this game" if of is None else f"the screen of turn {of}"
            ledger.wrong_screens.append(f"{where}: {width}x{height}, {whose}")
        drawn[expected] = number
        before = app.state()["score"]
        if turn.action is not None:
            x, y = (float(share) for share in turn.action)
            row = min(int(y * height), height - 1) - bar
            app.touch((min(int(x * width), width - 1) + 0.5) / width, (row + 0.5) / (height - bar))
        reward = (app.state()["score"] - before) / STAKE
        if turn.env_reward != reward:
            ledger.wrong_rewards.append(
                f"{where}: {turn.env_reward:+g}, not {reward:+g}; {turn.info.get('guard', '')}"
            )


def _tell(
    console: Console, ledger: Ledger, stats: Sequence[Any], watch: Watch, memory: Memory
) -> int:
    table = Table("games", "", title="Outcomes")
    for name, value in (
        ("requested", ledger.asked),
        ("finished", ledger.finished),
        ("played, including void games", ledger.attempts),
        ("lost", len(ledger.lost)),
        ("counted twice", len(ledger.twice)),
        *((f"void: {why}", count) for why, count in ledger.void.most_common()),
        ("phones recovered after a failure", sum(row.failures for row in stats)),
        ("phones that did not return from quarantine", len(ledger.never_back)),
        ("screens compared", ledger.screens),
        ("screens that the game did not draw", len(ledger.wrong_screens)),
        ("rewards that the game did not give", len(ledger.wrong_rewards)),
    ):
        table.add_row(name, str(value))
    console.print(table)
    shelf = Table(
        "phone", "leases", "failures", "recovered by", "in quarantine", "busy", title="Phones"
    )
    for row in stats:
        aside = "yes" if row.quarantined else ""
        rungs = ", ".join(f"{rung} {count}" for rung, count in row.recoveries.items())
        shelf.add_row(
            row.serial, str(row.leases), str(row.failures), rungs, aside, f"{row.busy_share:.0%}"
        )
    console.print(shelf)
    console.print(
        f"{watch.calls} calls to phones; the latest ended {watch.worst_s:.2f} s after its deadline "
        f"({watch.worst or 'no call was late'})",
        highlight=False,
    )
    broken = [
        f"{what}: {one}"
        for what, which in (
            ("lost", ledger.lost),
            ("counted twice", ledger.twice),
            ("wrong screens", ledger.wrong_screens),
            ("wrong rewards", ledger.wrong_rewards),
            ("did not return from quarantine", ledger.never_back),
        )
        for one in which[:_MOST_TOLD]
    ]
    if watch.worst_s > _LATE_S:
        broken.append(f"a call was {watch.worst_s:.1f} s late: {watch.worst}")
    for name in memory.seen:
        early, late = memory.growth(name)
        console.print(f"memory of {name}: {early:.0f} MB, then {late:.0f} MB", highlight=False)
        if len(memory.seen[name]) >= _FEWEST_LOOKS and late > early * (1 + _MOST_GROWTH):
            broken.append(f"memory of {name} grew from {early:.0f} to {late:.0f} MB")
    for complaint in broken:
        console.print(f"[red]failed:[/] {complaint}", highlight=False)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
