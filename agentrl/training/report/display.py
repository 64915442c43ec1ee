"""The live display of a job on a terminal, and plain lines everywhere else."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agentrl.training.report.words import flat, headline, span

_LOG_WIDTH = 120

TRAINING = "reinforcement"
"""The stage whose steps are counted; all others only know how far they are themselves."""

_PLAIN_EVERY_S = 15.0
_BAR_WIDTH = 60
_GAP = 3


def _console() -> Console:
    """The terminal; a log file is wide enough for the table of results."""
    found = Console()
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(width=_LOG_WIDTH)


class Display:
    """Stage, step, reward, success, tokens/s, episodes/s and the time left.

    Args:
        run: the run's folder, for the title.
        total_steps: training steps of the whole job; 0 if it does not train.
        console: where to draw; the standard output if None.
    """

    def __init__(self, run: Path, total_steps: int, console: Console | None = None) -> None:
        self._console = console or _console()
        self._run = run
        self._total_steps = total_steps
        self._started = self._stage_started = time.monotonic()
        self._training_started: float | None = None
        self._stage = ""
        self._steps_done = 0
        self._step = 0
        self._part: tuple[float, float, str] = (0, 0, "")
        self._metrics: Mapping[str, float] = {}
        self._spoke = self._started
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(
                console=self._console, refresh_per_second=4, get_renderable=lambda: self
            )
            self._live.start()

    def stage(self, name: str) -> None:
        """A new part of the job begins."""
        now = time.monotonic()
        if name == TRAINING and self._training_started is None:
            self._training_started = now
        if name != self._stage:
            self._stage, self._stage_started = name, now
            self._metrics = {}
            if name != TRAINING or self._steps_done == 0:
                self._say(name)
        self._part = (0, 0, "")

    def rewind(self, step: int) -> None:
        """Training goes on after this step."""
        self._step = step
        self._say(f"resumed after step {step}")

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Show the numbers of a step."""
        self._metrics = metrics
        if stage == TRAINING:
            self._step = step
            self._steps_done += 1
            self._part = (0, 0, "")
        elif not self._is_due():
            return
        numbers = "  ".join(f"{name} {value}" for name, value in headline(metrics))
        self._say(f"{stage} {step}  {numbers}{self._left_text()}")

    def progress(self, done: float, total: float, note: str) -> None:
        """Show how far the stage or the step is; on plain output only now and then."""
        self._part = (done, total, note)
        if self._is_due():
            self._say(f"{self._stage} {done:g}/{total:g} {note}{self._left_text()}")

    def finish(self, results: Mapping[str, Any]) -> None:
        """Show a table of what everybody reached, and where the time went."""
        rows = flat(results)
        columns = list(dict.fromkeys(key for row in rows.values() for key in row))
        if rows:
            # Names of metrics and players are an environment's words, no markup.
            table = Table("", *map(escape, columns), title=Text(f"{self._run}"))
            for name, row in rows.items():
                table.add_row(escape(name), *(f"{row[c]:g}" if c in row else "" for c in columns))
            self._console.print(table)
        spent = results.get("seconds", {})
        for stage, seconds in spent.items():
            self._console.print(Text(f"{stage:20} {span(seconds):>8}"))
        if spent:
            self._console.print(Text(f"{'together':20} {span(sum(spent.values())):>8}"))

    def close(self) -> None:
        """Leave the last picture on the screen."""
        if self._live is not None:
            self._live.stop()
        self._say(f"ended after {span(time.monotonic() - self._started)}")

    def seconds_left(self) -> float | None:
        """Of the present stage, by the pace so far; None while there is none."""
        now = time.monotonic()
        if self._stage == TRAINING and self._training_started is not None:
            done = self._steps_done + self._part_share()
            left = self._total_steps - self._step - self._part_share()
            return (now - self._training_started) / done * max(0.0, left) if done > 0 else None
        share = self._part_share()
        return (now - self._stage_started) / share * (1 - share) if share > 0 else None

    def _part_share(self) -> float:
        done, total, _ = self._part
        return min(1.0, done / total) if total > 0 else 0.0

    def _share(self) -> float:
        """How much of the stage is done, in [0, 1]."""
        if self._stage != TRAINING:
            return self._part_share()
        return min(1.0, (self._step + self._part_share()) / max(1, self._total_steps))

    def _is_due(self) -> bool:
        """Whether plain output has been silent for long enough."""
        return time.monotonic() - self._spoke >= _PLAIN_EVERY_S

    def _say(self, line: str) -> None:
        self._spoke = time.monotonic()
        if self._live is None:
            clock = span(self._spoke - self._started)
            self._console.print(Text(f"[{clock:>7}] {line}"), soft_wrap=True)

    def _left_text(self) -> str:
        left = self.seconds_left()
        return "" if left is None else f"  left {span(left)}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The panel, no line of it wider than the console."""
        width = options.max_width
        title = Text.assemble((f" {self._stage or 'start'} ", "bold reverse"), f"  {self._run}")
        note = Text(self._part[2], style="dim")
        for line in (title, note):
            line.truncate(width, overflow="ellipsis")
        yield title
        yield ProgressBar(total=1.0, completed=self._share(), width=min(_BAR_WIDTH, width))
        yield Text()  # A bar does not end its own line.
        yield self._facts(width)
        yield note

    def _facts(self, width: int) -> Table:
        """Step and times, and as many of the stage's numbers between them as there is room for."""
        left = self.seconds_left()
        step = [("step", f"{self._step}/{self._total_steps}")] if self._total_steps else []
        after = [
            ("elapsed", span(time.monotonic() - self._started)),
            ("left", "?" if left is None else span(left)),
        ]
        room = width - sum(map(_cell_width, step + after))
        numbers = []
        for cell in headline(self._metrics):
            room -= _cell_width(cell)
            if room < 0:
                break
            numbers.append(cell)
        cells = [*step, *numbers, *after]
        facts = Table.grid(padding=(0, _GAP, 0, 0))
        facts.add_row(*(Text(name, style="dim", no_wrap=True) for name, _ in cells))
        facts.add_row(*(Text(value, style="bold", no_wrap=True) for _, value in cells))
        return facts


def _cell_width(cell: tuple[str, str]) -> int:
    return max(map(len, cell)) + _GAP
