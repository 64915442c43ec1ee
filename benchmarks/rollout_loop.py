"""Measure the rollout loop alone, with a stub engine that replies immediately.

    python benchmarks/rollout_loop.py [--against CHECKOUT]

Plays trivial environments and number games on virtual phones, with everything recorded, and prints
turns per second, and CPU milliseconds per turn for each process and each part of a turn. On a busy
machine only the CPU times are comparable. With `--against`, another checkout of agentrl plays the
same turns in alternation. Each case runs in a separate process, with its own adb server.
"""

import argparse
import asyncio
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np
import psutil
from conditions import conditions
from rich.console import Console
from rich.table import Table

from agentrl import config as configuration
from agentrl.child_process import free_port
from agentrl.config import Config, ModelConfig
from agentrl.devices.adb import find_adb
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.capture.screencap import RawCapture
from agentrl.devices.screen_comparison import ScreenComparison
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.engines.engine import EngineSettings, Sampling, TokenEngine
from agentrl.policies.models.model_source import resolve_model
from agentrl.replay.frames.frame_pack import PackWriter
from agentrl.replay.recorder import Recorder
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.rewards.scoring import RewardFunctions
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.types import Prompt, Reply

HERE = Path(__file__).resolve()
TAPS = [(0.17, 0.7), (0.5, 0.7), (0.83, 0.7), (0.5, 0.9), (0.5, 0.9), (0.5, 0.9)]
"""The cards and the button of the number game; the button opens the next round."""
SIZES = {"720x1280": (720, 1280), "84x140": (84, 140)}
"""A common phone screen, and a screen of the size to which the tiny model scales it."""


class StubEngine(TokenEngine):
    """Replies immediately with one of the given texts.

    Args:
        settings: settings of the engine.
        replies: possible texts; the sampling seed selects a text.
    """

    def __init__(self, settings: EngineSettings, *, replies: list[str]) -> None:
        super().__init__(settings)
        self._texts = replies

    async def start(self) -> None:
        """Encode the replies."""
        encode = self.settings.open_encoder().reply_ids
        self._replies = [
            Reply(token_ids=ids, logprobs=(-0.1,) * len(ids), version=0)
            for ids in map(encode, self._texts)
        ]

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """Return the reply selected by the seed."""
        return self._replies[sampling.seed % len(self._replies)]

    async def load_weights(self, path: Path, version: int) -> None:
        """Do nothing: there are no weights."""

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


class TextEnv(gymnasium.Env[Any, int]):
    """Shows a number and never ends."""

    observation_space: gymnasium.Space[Any] = gymnasium.spaces.Discrete(10)
    action_space: gymnasium.Space[Any] = gymnasium.spaces.Discrete(2)
    count = 0

    def observe(self) -> Any:
        """Return the current number."""
        return self.count % 10

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start at zero."""
        super().reset(seed=seed)
        self.count = 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Increase the number."""
        self.count += 1
        return self.observe(), float(action), False, False, {}


class ImageEnv(TextEnv):
    """Shows an image of 84x84 pixels that changes every turn."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 3), np.uint8)

    def observe(self) -> Any:
        """Return a gray image."""
        return np.full((84, 84, 3), self.count % 250, np.uint8)


if "LoopText-v0" not in gymnasium.registry:  # `rollout.engine` imports this file again
    gymnasium.register("LoopText-v0", lambda **kwargs: TextEnv())
    gymnasium.register("LoopImage-v0", lambda **kwargs: ImageEnv())


@dataclass(slots=True, kw_only=True, frozen=True)
class Case:
    """A case to play."""

    name: str
    overrides: tuple[str, ...]
    concurrency: int
    episodes: int
    phones: bool = False

    def config(self) -> Config:
        """Adapt the number game's configuration, or the defaults."""
        replies = ["<action>0</action>", "<action>1</action>"]
        if self.phones:
            replies = [f"<think>next</think><action>tap({x}, {y})</action>" for x, y in TAPS]
        return configuration.resolve(
            "number_game" if self.phones else Config(),
            [
                f"rollout.engine={HERE}:StubEngine",
                f"rollout.engine_kwargs={json.dumps({'replies': replies})}",
                "rollout.launcher=local",
                f"rollout.concurrency={self.concurrency}",
                *self.overrides,
            ],
        )


def cases(phones: list[int]) -> list[Case]:
    """Return all cases."""
    found = [
        Case(
            name=f"trivial, {kind.lower()}",
            overrides=("model.path=tiny", f"env.id=Loop{kind}-v0", "env.max_turns=50"),
            concurrency=32,
            episodes=64,
        )
        for kind in ("Text", "Image")
    ]
    for name, (width, height) in SIZES.items():
        for count in phones:
            found.append(
                Case(
                    name=f"{count} phones, {name}",
                    overrides=(
                        f"devices.source=virtual:{count}",
                        f"devices.size=[{width},{height}]",
                    ),
                    concurrency=count,
                    episodes=max(8, 2 * count),
                    phones=True,
                )
            )
    return found


@dataclass(slots=True, kw_only=True)
class Result:
    """Measurements of a case."""

    turns: int
    wall_s: float
    act_s: float
    """Mean time from a reply to the settled screen."""
    cpu_s: dict[str, float]
    """CPU seconds by process."""
    parts_s: dict[str, float] = field(default_factory=dict)
    """CPU seconds of this process's threads by part of a turn, excluding nested parts."""
    captures: int = 0


class PartTimer:
    """Measures the CPU time of functions, excluding other measured functions they call."""

    PARTS = (
        ("environment", EnvRunner, "_act"),
        ("environment", EnvRunner, "_reset"),
        ("phone: commands", AdbPhone, "send_action"),
        ("phone: commands", AdbPhone, "look"),
        ("phone: commands", AdbPhone, "focus"),
        ("phone: commands", AdbPhone, "window"),
        ("phone: commands", AdbPhone, "launch"),
        ("phone: captures", AdbPhone, "screenshot"),
        ("phone: captures", AdbPhone, "screenshot_and_front"),
        ("phone: captures", RawCapture, "frame"),
        ("phone: captures", RawCapture, "parse"),
        ("phone: comparing", ScreenComparison, "matches"),
        ("message", EnvRunner, "_message"),
        ("prompt: ids", Conversation, "observe"),
        ("prompt: images", ChatEncoder, "content"),
        ("frame: hash", Recorder, "frame"),
        ("frame: file", PackWriter, "add"),
        ("episode: file", Recorder, "episode"),
        ("reward", RewardFunctions, "score"),
    )

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)
        self._nested = threading.local()
        for part, owner, name in self.PARTS:
            if (function := getattr(owner, name, None)) is not None:  # not in every checkout
                setattr(owner, name, self._timed(part, function))

    def clear(self) -> None:
        """Reset all measurements."""
        self.seconds.clear()
        self.calls.clear()

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            outer = getattr(self._nested, "seconds", 0.0)
            self._nested.seconds = 0.0
            started = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                took = time.thread_time() - started
                self.seconds[part] += took - self._nested.seconds
                self.calls[function.__qualname__] += 1
                self._nested.seconds = outer + took

        return timed


async def play(case: Case, model: Path) -> Result:
    """Play the case twice and measure the second time.

    Args:
        case: the case to play.
        model: folder of the tiny model; only its tokenizer is used.
    """
    timer = PartTimer()
    config = case.config()
    with tempfile.TemporaryDirectory() as scratch, adb_server() as port:
        rollouts = RolloutWorker(plan_rollouts(config), model, Path(scratch) / "run")
        await rollouts.start()
        try:
            await rollouts.collect(requests_of_step("train", 0, range(case.concurrency), 1))
            timer.clear()
            before, started = cpu_s(port), time.perf_counter()
            played = await rollouts.collect(requests_of_step("train", 1, range(case.episodes), 1))
            wall_s = time.perf_counter() - started
            after = cpu_s(port)
        finally:
            await rollouts.close()
    turns = [turn for scored in played for turn in scored.episode.turns]
    return Result(
        turns=len(turns),
        wall_s=wall_s,
        act_s=sum(turn.timings["act"] for turn in turns) / len(turns),
        cpu_s={name: after[name] - before[name] for name in after},
        parts_s=dict(timer.seconds),
        captures=timer.calls["RawCapture.frame"] + timer.calls["RawCapture.parse"],
    )


@contextmanager
def adb_server() -> Iterator[int]:
    """Yield a port for a separate adb server, started by the phones; kill the server at the end."""
    port = free_port()
    os.environ["ANDROID_ADB_SERVER_PORT"] = str(port)
    try:
        yield port
    finally:
        subprocess.run([find_adb(), "-P", str(port), "kill-server"], capture_output=True)


def cpu_s(port: int) -> dict[str, float]:
    """Return the CPU seconds so far of this process, the phones' process and the adb server."""
    servers = [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "adb"
        and any(str(port) in argument for argument in process.info["cmdline"] or ())
    ]
    mine = psutil.Process()
    processes = {"loop": [mine], "phones": mine.children(recursive=True), "adb": servers}
    return {
        name: sum(time.user + time.system for time in (p.cpu_times() for p in group))
        for name, group in processes.items()
    }


def main() -> None:
    """Run the cases and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phones", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--only", default="", help="play only cases whose names contain this text")
    parser.add_argument("--against", type=Path, help="another checkout, named `before`")
    parser.add_argument(
        "--rounds", type=int, default=1, help="repetitions of each case; the median is shown"
    )
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = [case for case in cases(options.phones) if options.only in case.name]
    if options.case:
        (case,) = (case for case in chosen if case.name == options.case)
        print(json.dumps(asdict(asyncio.run(play(case, options.model)))))
        return
    print(conditions("adbutils", "numpy", "opencv-python-headless"))
    trees = {"": HERE.parents[1]}
    if options.against:
        trees = {"before": options.against.resolve(), "after": HERE.parents[1]}
    results: dict[tuple[str, str], list[Result]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        model = resolve_model(ModelConfig(path="tiny"), 0, Path(scratch) / "model")
        for case in chosen:
            for _ in range(options.rounds):
                for name, tree in trees.items():
                    results[case.name, name].append(_run(case, tree, model, options.phones))
    _print(results)


def _run(case: Case, tree: Path, model: Path, phones: list[int]) -> Result:
    command = [sys.executable, str(HERE), "--case", case.name, "--model", str(model)]
    command += ["--phones", *map(str, phones)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    # Also set cwd, because the phones' process prefers the agentrl in its working directory.
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, check=True)
    return Result(**json.loads(done.stdout.splitlines()[-1]))


def _print(results: dict[tuple[str, str], list[Result]]) -> None:
    def per_turn(found: list[Result], amount: Callable[[Result], float]) -> float:
        return median(amount(result) / result.turns for result in found)

    def ms(found: list[Result], seconds: Callable[[Result], float]) -> str:
        return f"{per_turn(found, seconds) * 1e3:.2f}"

    def process(name: str) -> Callable[[Result], float]:
        return lambda result: result.cpu_s[name]

    def one_part(part: str) -> Callable[[Result], float]:
        return lambda result: result.parts_s.get(part, 0.0)

    overview = Table(
        *("", "", "turns/s", "captures per turn", "wait for effect, ms"),
        *("CPU, ms per turn", "loop", "phones", "adb server"),
    )
    parts = Table("CPU of the loop, ms per turn", *(" ".join(key).strip() for key in results))
    for (case, tree), found in results.items():
        overview.add_row(
            case,
            tree,
            f"{median(result.turns / result.wall_s for result in found):.0f}",
            f"{per_turn(found, lambda result: result.captures):.2f}",
            f"{median(result.act_s for result in found) * 1e3:.1f}",
            ms(found, lambda result: sum(result.cpu_s.values())),
            *(ms(found, process(name)) for name in found[0].cpu_s),
        )
    for part in dict.fromkeys(part for part, *_ in PartTimer.PARTS):
        parts.add_row(part, *(ms(found, one_part(part)) for found in results.values()))
    rest = [
        ms(found, lambda result: result.cpu_s["loop"] - sum(result.parts_s.values()))
        for found in results.values()
    ]
    parts.add_row("everything else", *rest)
    console = Console(width=120 + 24 * len(results))
    console.print(overview)
    console.print(parts)


if __name__ == "__main__":
    main()
