"""Stages of a long command: each has a budget, a log, and samples of memory and disk space."""

import csv
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agentrl import child_process
from agentrl.cluster.machine_resources import host_memory

EXTREMES = {"gpu": max, "memory free": min, "shm": max, "disk free": min}
"""Sampled sizes, and their extreme to print for each stage."""


class StageFailed(Exception):
    """A command failed, or a stage exceeded its budget."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """A stage, and what was measured in it."""

    name: str
    budget: float
    seconds: float = 0.0
    outcome: str = "failed"
    samples: list[dict[str, float]] = field(default_factory=list)
    """Memory and disk space of every second, in GB."""

    def row(self) -> dict[str, str | float]:
        """Return the table row."""
        row: dict[str, str | float] = {
            "stage": self.name, "outcome": self.outcome, "seconds": round(self.seconds, 1),
            "budget": self.budget,
        }  # fmt: skip
        for name, extreme in EXTREMES.items():
            values = [sample[name] for sample in self.samples if name in sample]
            row[f"{name}, GB"] = round(extreme(values), 1) if values else ""
        return row


class Stages:
    """Runs stages in a folder, each within its budget.

    Args:
        folder: the folder; the output of each stage goes to `logs`.
        budgets: seconds by stage.
        essential: stages after whose failure no other is run.
    """

    def __init__(
        self, folder: Path, budgets: Mapping[str, float], essential: Sequence[str]
    ) -> None:
        self._folder, self._budgets, self._essential = folder, budgets, essential
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self._ends = 0.0
        """Time at which the current stage exceeds its budget."""
        self.ran: list[Stage] = []
        self.errors: list[str] = []
        """Failed stages and checks."""

    def run(self, stages: Sequence[Callable[[], None]]) -> None:
        """Run stages, which are named like their functions."""
        for stage in stages:
            budget = self._budgets[stage.__name__]
            self.ran.append(measured := Stage(name=stage.__name__, budget=budget))
            print(f"{measured.name} (at most {budget:g} s) ...", flush=True)
            began = time.monotonic()
            self._ends = began + budget
            try:
                stage()
                measured.outcome = "ok"
            except (StageFailed, AssertionError) as failure:
                self.errors.append(f"{measured.name}: {failure}")
                if measured.name in self._essential:
                    return
            finally:
                measured.seconds = time.monotonic() - began

    @property
    def left(self) -> float:
        """Seconds left of the stage's budget."""
        return max(0.1, self._ends - time.monotonic())

    def call(self, command: Sequence[str]) -> str:
        """Run a command within the stage's budget and return its output."""
        with self.running(command):
            return (self.logs / f"{self.ran[-1].name}.log").read_text()

    @contextmanager
    def running(
        self, command: Sequence[str], is_ready: Callable[[], bool] | None = None
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a command, and end it with all its processes at the end of the block.

        Args:
            command: the command; its output goes to the stage's log.
            is_ready: the block begins when this returns True; None waits for the command's end.

        Raises:
            StageFailed: the command failed or ended too early, or the stage exceeded its budget.
        """
        log = self.logs / f"{self.ran[-1].name}.log"
        with log.open("wb") as output:
            process = child_process.start(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            while is_ready is None or not is_ready():
                code, why = process.poll(), ""
                if code == 0 and is_ready is None:
                    break
                if code is not None:
                    why = f"ended too early, with {child_process.describe_exit(code)}"
                elif time.monotonic() > self._ends:
                    why = f"not finished after {self.ran[-1].budget:g} s"
                if why:
                    said = log.read_text(errors="replace")[-2000:]
                    raise StageFailed(f"{why}; {log} ends with\n{said}")
                time.sleep(0.1)
            yield process
        finally:
            child_process.end(process)

    @contextmanager
    def sampled(self) -> Iterator[None]:
        """Sample memory and disk space every second."""
        closed = threading.Event()

        def sample() -> None:
            path = self._folder / "samples.csv"
            is_new = not path.exists()  # a single stage adds to those before it
            with path.open("a", buffering=1) as file:
                rows = csv.DictWriter(file, ["stage", "time", *EXTREMES])
                if is_new:
                    rows.writeheader()
                while not closed.wait(1.0):
                    if self.ran:
                        self.ran[-1].samples.append(sizes := memory_and_disk(self._folder))
                        rows.writerow({"stage": self.ran[-1].name, "time": time.time(), **sizes})

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            closed.set()
            thread.join()


def memory_and_disk(folder: Path) -> dict[str, float]:
    """Return the sizes named in `EXTREMES`, in GB; without a GPU, none of it."""
    sizes = {"memory free": host_memory().free, "disk free": shutil.disk_usage(folder).free}
    with suppress(OSError):
        sizes["shm"] = shutil.disk_usage("/dev/shm").used
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        said = subprocess.run(query, capture_output=True, text=True, timeout=5).stdout
        sizes["gpu"] = max(map(int, said.split())) << 20
    return {name: round(size / 1e9, 3) for name, size in sizes.items()}
