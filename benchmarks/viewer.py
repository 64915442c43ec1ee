"""Measure response times and memory of the viewer for a long run.

    python benchmarks/viewer.py [--episodes 10000] [--turns 20]

Records that many episodes, serves them in a separate process, and sends the pages' requests. Then
it does the same with a folder of 50 runs of 500 steps. Finally, for the episodes, 200 runs and
200 MB of metrics, it starts new servers and measures when the first request is answered, possibly
with just the reading progress, and when the reply has its data.
"""

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from agentrl.config import Config, EnvConfig
from agentrl.replay.recorder import Recorder
from agentrl.types import Episode, Image, Outcome, ScoredEpisode, Turn

TRIES = 20
RUNS, STEPS = 50, 500
MANY_RUNS, METRICS_BYTES = 200, 200 << 20
FRAMES = 400
"""Distinct screens; in a long run most screens occur repeatedly."""


def screen(number: int) -> Image:
    """Draw a 720x1280 screen with flat areas, like a game."""
    drawn = np.full((1280, 720, 3), 240, np.uint8)
    rng = np.random.default_rng(number)
    for _ in range(12):
        x, y = rng.integers(0, 600), rng.integers(0, 1100)
        drawn[y : y + 160, x : x + 110] = rng.integers(0, 255, 3)
    return drawn


def record(folder: Path, episodes: int, turns: int) -> float:
    """Record the episodes and return the seconds it took."""
    started = time.perf_counter()
    with Recorder(folder, config="bench") as recorder:
        frames = [recorder.frame(screen(number)) for number in range(FRAMES)]
        for number in range(episodes):
            played = tuple(_turn(frames[(number * 7 + t) % FRAMES], t) for t in range(turns))
            group, member = divmod(number, 8)
            rewards = tuple(float(t == turns - 1) for t in range(turns))
            episode = Episode(
                id=f"train-{group // 4:05d}-g{group % 4:03d}-m{member:02d}", env_id="Game-v0",
                seed=group, group=f"train-{group // 4:05d}-g{group % 4:03d}", member=member,
                reset_info={}, instructions="Play.", turns=played, final_shown="",
                final_frames=(frames[number % FRAMES],), outcome=Outcome.TERMINATED, error=None,
                device=f"127.0.0.1:{5600 + number % 16}",
            )  # fmt: skip
            scored = ScoredEpisode(
                episode=episode, components={"outcome": rewards}, rewards=rewards
            )
            recorder.episode(scored, split="train", step=group // 4)
            recorder.record_advantages(
                scored,
                [
                    [r] * len(t.reply_ids)
                    for r, t in zip(rewards, scored.episode.turns, strict=True)
                ],
            )
    return time.perf_counter() - started


def _turn(frame: str, number: int) -> Turn:
    return Turn(
        prompt_ids=tuple(range(300)), reply_ids=tuple(range(40)), reply_logprobs=(-0.2,) * 40,
        reply_versions=(3,) * 40, images=(),
        reply=f"<think>card {number}</think><action>tap(0.2, 0.4)</action>",
        shown="<image>", frames=(frame,), action=[0.2, 0.4], parse_error=None,
        env_reward=0.0, state_key=None, info={"round": number, "metrics": {"accuracy": 1.0}},
        timings={"generate": 0.2, "act": 0.1},
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        took = record(run, options.episodes, options.turns)
        started = time.perf_counter()
        with served(run) as (url, pid):
            up = time.perf_counter() - started
            rows = _measured(url)
            memory = _memory_mb(pid)
        first = {f"{options.episodes:,} episodes": _first(run, "api/episodes")}
        write_runs(Path(folder) / "many", MANY_RUNS)
        first[f"{MANY_RUNS} runs"] = _first(Path(folder) / "many", "api/runs")
        first[f"{METRICS_BYTES >> 20} MB of metrics"] = _first(
            write_metrics(Path(folder) / "logged"), "api/curves"
        )
        names = write_runs(Path(folder) / "runs", RUNS)
        with served(Path(folder) / "runs") as (url, _):
            overlay = "api/runs/curves?" + "&".join(f"run={name}" for name in names)
            for name, path in ((f"the list of {RUNS} runs", "api/runs"), ("their curves", overlay)):
                rows[name] = [_seconds(url + path) for _ in range(TRIES)]
    table = Table("", "median, ms", "at most, ms")
    for name, times in rows.items():
        table.add_row(name, f"{1000 * median(times):.1f}", f"{1000 * max(times):.1f}")
    console = Console()
    console.print(table)
    opened = Table("opened", "up, s", "first answer, s", "all data, s", "memory, MB")
    for name, numbers in first.items():
        opened.add_row(name, *(f"{number:.1f}" for number in numbers))
    console.print(opened)
    console.print(
        f"{options.episodes:,} episodes of {options.turns} turns, recorded in {took:.1f} s; "
        f"the server was up in {up:.1f} s and takes {memory:.0f} MB"
    )


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, int]]:
    """Run a viewer in a separate process; yield its address and process id."""
    command = [sys.executable, "-m", "agentrl", "view", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().partition("#")[0], server.pid
        finally:
            server.terminate()


def write_runs(folder: Path, runs: int) -> list[str]:
    """Write runs with logged metrics but no episodes; return their names."""
    tree = Config(env=EnvConfig(id="Game-v0")).to_dict()
    for number in range(runs):
        run = folder / f"run-{number:03d}"
        run.mkdir(parents=True)
        (run / "config.yaml").write_text(yaml.safe_dump({**tree, "seed": number}))
        (run / "summary.json").write_text(json.dumps({"after": {"sampled": {"reward": 1.0}}}))
        line: dict[str, Any] = {"stage": "reinforcement", "time": 1.0}
        line |= {f"learner/metric_{n}": float(n) for n in range(60)}
        steps = ({**line, "step": n, "train/reward": n / STEPS} for n in range(1, STEPS + 1))
        lines = "".join(json.dumps(step) + "\n" for step in steps)
        (run / "metrics.jsonl").write_text(lines)
    return [run.name for run in folder.iterdir()]


def write_metrics(run: Path) -> Path:
    """Write a run with many metrics and steps but no episodes."""
    run.mkdir()
    (run / "config.yaml").write_text(yaml.safe_dump(Config(env=EnvConfig(id="Game-v0")).to_dict()))
    rng = np.random.default_rng(0)
    with (run / "metrics.jsonl").open("w") as file:
        step = written = 0
        while written < METRICS_BYTES:
            step += 1
            values = {f"learner/metric_{n}": value for n, value in enumerate(rng.random(100))}
            line = {"stage": "reinforcement", "step": step, "time": 1.0 * step, **values}
            written += file.write(json.dumps(line) + "\n")
    return run


def _first(folder: Path, path: str) -> tuple[float, float, float, float]:
    """Return the seconds until a new server is up, responds and has data, and its memory."""
    started = time.perf_counter()
    with served(folder) as (url, pid):
        up = time.perf_counter() - started
        started = time.perf_counter()
        answered = None
        while _get(url + path).startswith(b'{"reading"'):
            answered = answered or time.perf_counter() - started
        took = time.perf_counter() - started
        return up, answered or took, took, _memory_mb(pid)


def _measured(url: str) -> dict[str, list[float]]:
    listed = json.loads(_get(f"{url}api/episodes?count=500&down=false"))["rows"]
    ids = [row["id"] for row in listed[:: len(listed) // TRIES or 1]][:TRIES]
    whole = [json.loads(_get(f"{url}api/episodes/{id}")) for id in ids]
    frames = [episode["played"][3]["frames"][0] for episode in whole]
    requests = {
        "the list, newest first": ["api/episodes"] * TRIES,
        "the list, filtered and sorted": ["api/episodes?success=true&sort=total&first=200"] * TRIES,
        "the list, by one word": ["api/episodes?text=card"] * TRIES,
        "the list, by a letter and a word": ["api/episodes?text=t+act"] * TRIES,
        "the overview": ["api/run"] * TRIES,
        "an episode": [f"api/episodes/{id}" for id in ids],
        "the tokens of a turn": [f"api/episodes/{id}/turns/5" for id in ids],
        "its screen": [f"frames/{frame}" for frame in frames],
        "a small screen": [f"frames/{frame}?width=96" for frame in frames],
        "a group of 8": [f"api/groups/{episode['group']}" for episode in whole],
    }
    _wait_for_words(url)
    return {name: [_seconds(url + path) for path in paths] for name, paths in requests.items()}


def _wait_for_words(url: str) -> None:
    """Wait until the search index is complete; the first search starts building it."""
    read, total = 0, 1
    while read < total:
        read, total = json.loads(_get(f"{url}api/episodes?text=card&count=1"))["searched"]
        time.sleep(0.5)


def _seconds(url: str) -> float:
    started = time.perf_counter()
    _get(url)
    return time.perf_counter() - started


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        body: bytes = answer.read()
        return body


def _memory_mb(pid: int) -> float:
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
