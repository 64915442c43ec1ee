"""Runs a job with several values of its settings: `agentrl sweep`."""

import itertools
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from agentrl import config as configuration
from agentrl.child_process import end_with_parent
from agentrl.errors import ConfigError
from agentrl.files import write_durably
from agentrl.runs.job_state import job_state
from agentrl.runs.run_summary import summarize

MAX_JOBS = 1000
_RANGE = re.compile(r"(-?[0-9]+)\.\.(-?[0-9]+)")
_POLL_S = 0.2
_STOP_S = 600.0
"""Seconds that a job may take to write its checkpoint after a signal."""
_OWN = ("run.dir", "run.name")
_SETTINGS = "sweep.txt"


@dataclass(slots=True, kw_only=True, frozen=True)
class SweepJob:
    """The job for one combination of values."""

    name: str
    """Name of the job's run, such as `seed=0,algorithm.name=grpo`."""
    settings: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Running:
    job: SweepJob
    process: "subprocess.Popen[bytes]"


def plan_sweep(config: str, settings: Sequence[str]) -> list[SweepJob]:
    """Return a job for each combination of values, each checked as a configuration.

    Args:
        config: a YAML file or packaged name.
        settings: `key=value`, with several values as `key=a,b` or `key=0..4`.

    Raises:
        ConfigError: no setting has several values, there are too many jobs, or a job is invalid.
    """
    choices: dict[str, list[str]] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals or key in choices:
            raise ConfigError(
                f"{setting}: each setting must be given once, as key=value, key=a,b or key=0..4"
            )
        if key in _OWN:
            raise ConfigError(
                f"{setting}: cannot be set, because a sweep names its runs; --name sets their "
                "folder"
            )
        choices[key] = _values(key, text)
    varied = [key for key, values in choices.items() if len(values) > 1]
    if not varied:
        raise ConfigError(
            "no setting has several values; write, for example, seed=0..2 or "
            "algorithm.name=grpo,dapo"
        )
    count = 1
    for values in choices.values():
        count *= len(values)
    if count > MAX_JOBS:
        raise ConfigError(
            f"{count:,} combinations are too many; a sweep may have at most {MAX_JOBS:,} jobs"
        )
    jobs = []
    for combined in itertools.product(*choices.values()):
        chosen = dict(zip(choices, combined, strict=True))
        given = tuple(f"{key}={value}" for key, value in chosen.items())
        configuration.load(config, given)
        jobs.append(SweepJob(name=_name({key: chosen[key] for key in varied}), settings=given))
    names = [job.name for job in jobs]
    # Names are shortened and sanitized, which may make some of them equal.
    if len(set(names)) < len(names):
        numbers = itertools.count(1)
        jobs = [SweepJob(name=f"{next(numbers)}-{job.name}", settings=job.settings) for job in jobs]
    return jobs


def _values(key: str, text: str) -> list[str]:
    if (found := _RANGE.fullmatch(text.strip())) is not None:
        first, last = int(found[1]), int(found[2])
        if not 0 <= last - first < MAX_JOBS:
            raise ConfigError(
                f"{key}={text}: a range must be ascending and span at most {MAX_JOBS - 1:,}"
            )
        return [str(value) for value in range(first, last + 1)]
    values = _split(text)
    if len(set(values)) < len(values):
        raise ConfigError(f"{key}={text}: contains the same value twice")
    return values


def _split(text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    values, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        else:
            depth += (sign in "[{(") - (sign in "]})")
        if sign == "," and not quote and depth == 0:
            values.append("")
        else:
            values[-1] += sign
    return [value.strip() for value in values]


def _name(chosen: Mapping[str, str]) -> str:
    text = ",".join(f"{key}={value}" for key, value in chosen.items())
    return re.sub(r"[^A-Za-z0-9._+=,-]", "_", text)[:150]


def run_sweep(
    config: str,
    jobs: Sequence[SweepJob],
    folder: Path,
    *,
    parallel: int = 1,
    said: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Run the jobs, each in its own process; finished jobs are kept, others are resumed.

    A job's output is in `NAME.log`, next to its run. Ctrl-C, SIGTERM and SIGHUP stop all jobs,
    which then write their checkpoints; on Linux, so does the death of this process.

    Args:
        config: see `plan_sweep`.
        jobs: the sweep's jobs.
        folder: folder in which to create the runs.
        parallel: number of jobs that run at the same time.
        said: called with a message when a job starts or ends.

    Returns:
        The names of the jobs that failed.

    Raises:
        ConfigError: the folder belongs to a different sweep.
        KeyboardInterrupt: after Ctrl-C.
        SystemExit: after another signal, with status 128 + the signal's number.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _check_same(folder, [config, *(" ".join(job.settings) for job in jobs)])
    waiting = [job for job in jobs if job_state(folder / job.name) != "finished"]
    if len(waiting) < len(jobs):
        said(f"{len(jobs) - len(waiting)} of {len(jobs)} jobs were already finished")
    running: list[_Running] = []
    failed: list[str] = []
    with _forwarded(running) as stopped:
        while (waiting and not stopped) or running:
            while waiting and len(running) < parallel and not stopped:
                job = waiting.pop(0)
                running.append(_Running(job=job, process=_start(config, job, folder)))
                said(f"{job.name}: started; its output is in {folder / job.name}.log")
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                if status := one.process.returncode:
                    failed.append(one.job.name)
                    said(f"{one.job.name}: exit code {status}, see {folder / one.job.name}.log")
                else:
                    result = summarize(folder / one.job.name).result
                    said(f"{one.job.name}: finished{result and f', {result}'}")
            time.sleep(_POLL_S)
    return failed


def _check_same(folder: Path, lines: Sequence[str]) -> None:
    """Check that a folder's jobs belong to the same sweep, because they are listed together."""
    file, text = folder / _SETTINGS, "\n".join(lines) + "\n"
    if file.is_file() and file.read_text(encoding="utf-8") != text:
        raise ConfigError(
            f"{folder} belongs to a sweep with different settings; repeat its command to continue "
            "it, or choose a different --name"
        )
    write_durably(file, text)


def _start(config: str, job: SweepJob, folder: Path) -> "subprocess.Popen[bytes]":
    run = folder / job.name
    given = ["--resume", str(run)]
    if not (run / "config.yaml").is_file():
        given = [config, *job.settings, f"run.dir={folder}", f"run.name={job.name}"]
    with (folder / f"{job.name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "agentrl", "train", *given],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C in the terminal must reach only this process, which forwards it once.
            start_new_session=True,
            # A job writes a checkpoint on SIGTERM.
            preexec_fn=partial(end_with_parent, signal.SIGTERM),
        )


@contextmanager
def _forwarded(running: Sequence[_Running]) -> Iterator[list[int]]:
    """Forward stop signals to the jobs; a second signal kills them."""
    stopped: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        stopped.append(number)
        for one in running:
            with suppress(ProcessLookupError):
                one.process.send_signal(signal.SIGTERM if len(stopped) == 1 else signal.SIGKILL)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    earlier = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield stopped
    finally:
        # Jobs are still running at this point only if this process failed.
        for one in running:
            one.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                one.process.wait(_STOP_S)
        for number, handler in earlier.items():
            signal.signal(number, handler)
    if stopped and stopped[0] == signal.SIGINT:
        raise KeyboardInterrupt
    if stopped:
        raise SystemExit(128 + stopped[0])
