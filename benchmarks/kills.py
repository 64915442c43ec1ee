"""Kill a job at random moments and resume it (python benchmarks/kills.py).

One job runs to its end. Others, of the same configuration, are killed with SIGKILL at random
moments, resumed and killed again, until they end. The benchmark prints where they were killed, and
checks that

- the final model of each equals that of the uninterrupted job, byte for byte,
- each logged step is in `metrics.jsonl` once, with the same numbers,
- each episode is recorded once,
- nothing of a killed job is left running.

Exits with 1 if a check fails.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from conditions import conditions

from agentrl import replay

SETTINGS = (
    "rollout.group_size=16", "rollout.concurrency=16", "algorithm.minibatch=16",
    "warm_start.steps=20", "warm_start.cache=null", "train.steps=8", "eval.episodes=8",
    "checkpoint.every=2", "env.max_turns=20",
)  # fmt: skip
_EXACT = ("loss", "train/", "learner/")
_MACHINE = ("learner/seconds", "learner/peak_memory_gb")


def main() -> int:
    """Run the benchmark; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="how many kills")
    parser.add_argument("--each", type=int, default=5, help="how many of them strike one job")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    arguments = parser.parse_args()
    print(conditions("torch", "transformers"))
    moments = random.Random(arguments.seed)
    with TemporaryDirectory(prefix="kills-") as folder:
        began = time.monotonic()
        whole = Path(folder) / "whole"
        start(whole).wait()
        lasts = time.monotonic() - began
        print(f"uninterrupted: {lasts:.0f} s, {len(metrics(whole))} logged steps")
        failures, left = [], arguments.kills
        while left > 0:
            run = Path(folder) / f"killed-{left}"
            struck = strike(run, min(arguments.each, left), lasts, moments)
            left -= len(struck)
            found = differences(whole, run)
            print(f"killed {', '.join(struck)}: {'; '.join(found) or 'equal'}", flush=True)
            failures += found
    print(f"{len(failures)} differences after {arguments.kills} kills")
    return bool(failures)


def start(run: Path) -> "subprocess.Popen[bytes]":
    """Start or resume a job in a process group of its own."""
    resumed = (run / "config.yaml").is_file()
    given = (
        ["--resume", str(run)] if resumed else ["frozen_lake", *SETTINGS, f"run.name={run.name}"]
    )
    command = [sys.executable, "-m", "agentrl", "train", *given]
    command += [] if resumed else [f"run.dir={run.parent}"]
    log = (run.parent / f"{run.name}.log").open("ab")
    return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def strike(run: Path, kills: int, lasts: float, moments: random.Random) -> list[str]:
    """Kill a job some times, and let it end; where each kill struck."""
    struck: list[str] = []
    while len(struck) < kills:
        process = start(run)
        try:
            # Resumed jobs have less to do.
            process.wait(moments.uniform(0.2, 1.0) * lasts / (1 + len(struck) / 2))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            done = metrics(run)
            struck.append(f"after {done[-1]['stage']} {done[-1]['step']}" if done else "early")
            check_nothing_is_left(process.pid)
        else:
            break
    if not (run / "summary.json").is_file() and start(run).wait():
        raise SystemExit((run.parent / f"{run.name}.log").read_text()[-2000:])
    return struck or ["after the end"]


def check_nothing_is_left(group: int) -> None:
    """Wait until the processes of a killed job have ended, for 10 seconds at most."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.killpg(group, signal.SIGKILL)
    raise SystemExit(f"processes of a killed job were still running (group {group})")


def metrics(run: Path) -> list[dict[str, Any]]:
    """The logged steps."""
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def differences(whole: Path, run: Path) -> list[str]:
    """What is not as in the uninterrupted job."""
    found = []
    weights = [one / "model" / "model.safetensors" for one in (whole, run)]
    if weights[0].read_bytes() != weights[1].read_bytes():
        found.append("another model")
    steps = [
        Counter((line["stage"], line["step"]) for line in metrics(one)) for one in (whole, run)
    ]
    if steps[0] != steps[1]:
        found.append(f"steps {steps[1] - steps[0] or steps[0] - steps[1]}")
    for before, after in zip(metrics(whole), metrics(run), strict=False):
        for name in before:
            is_exact = name.startswith(_EXACT) and name not in _MACHINE
            if is_exact and before[name] != after.get(name):
                found.append(f"{before['stage']} {before['step']}: {name}")
    ids = [Counter(episode.id for episode in replay.open(one).episodes()) for one in (whole, run)]
    if max(ids[1].values()) > 1 or ids[0] != ids[1]:
        found.append(f"{sum(ids[1].values())} episodes instead of {sum(ids[0].values())}")
    return found


if __name__ == "__main__":
    sys.exit(main())
