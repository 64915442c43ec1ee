"""Console output of a job: a live panel on a terminal or in a notebook, plain lines elsewhere."""

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agentrl.runs.metrics_file import TRAINING_STAGES
from agentrl.runs.rings import ring_rows_of, ring_table
from agentrl.text.formatting import format_duration, shown_path
from agentrl.text_tables import ResultTable, flatten_results, print_table
from agentrl.training.monitoring.logger import Logger
from agentrl.training.monitoring.progress import PlannedWork, TimeEstimate

_LOG_WIDTH = 120
_PLAIN_EVERY_S = 15.0
_PANEL_EVERY_S = 0.5
_BAR_WIDTH = 60
_GAP = 3
HEADLINE = (
    "reward", "success", "accuracy", "unscored", "tokens_per_s", "episodes_per_s", "score",
    "token_accuracy", "loss", "unreadable", "void",
    "mismatch_max", "entropy", "turns_per_s",
)  # fmt: skip
"""Metrics shown on the console, in this order; other metrics are only in the files."""


def headline(metrics: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the names and formatted values of the most important metrics."""
    values: dict[str, float] = {}
    for key, value in metrics.items():
        values.setdefault(key.rpartition("/")[2], value)
    return [
        (name.replace("_per_s", "/s"), f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}")
        for name, value in ((name, values[name]) for name in HEADLINE if name in values)
    ]


def _console() -> Console:
    """Return a console for the terminal, or for a log wide enough for the table of results."""
    console = Console()
    is_sized = console.is_terminal or "COLUMNS" in os.environ
    return console if is_sized else Console(width=_LOG_WIDTH)


class _NotebookPanel:
    """An output of a notebook cell that is redrawn repeatedly."""

    def __init__(self) -> None:
        output = import_module("IPython.display")
        # The warning comes from libraries that would show their own progress bars.
        warnings.filterwarnings("ignore", message="IProgress not found")
        self._html = output.HTML
        self._handle = output.display(output.HTML(""), display_id=True)
        self._shown = 0.0

    def is_due(self) -> bool:
        """Whether the panel should be drawn again."""
        return time.monotonic() - self._shown >= _PANEL_EVERY_S

    def show(self, title: str, share: float, cells: Sequence[tuple[str, str]], note: str) -> None:
        """Draw the panel."""
        self._shown = time.monotonic()
        bar = f'<progress value="{share:.3f}" max="1" style="width:100%"></progress>'
        columns, values = [name for name, _ in cells], [value for _, value in cells]
        facts = ResultTable(columns=columns, rows=[values]).html()
        text = f"<p>{escape(title)}</p>{bar}{facts}<p>{escape(note)}</p>"
        self._handle.update(self._html(text))


class ConsoleDisplay(Logger):
    """Shows stage, step, reward, success or accuracy, tokens/s, episodes/s and the time left.

    Args:
        run: the run's folder, for the title.
        console: console to draw on; None for standard output.
    """

    def __init__(self, run: Path, amounts: PlannedWork, console: Console | None = None) -> None:
        self._console = console or _console()
        self._run = shown_path(run)
        self._total_steps = amounts.steps
        self._eta = TimeEstimate(amounts)
        self._started = self._spoke = time.monotonic()
        self._stage = self._note = ""
        self._trained = self._finished = False
        self._metrics: dict[str, Mapping[str, float]] = {}
        """The last metrics of each stage, kept because training continues after an evaluation."""
        self._live: Live | None = None
        self._panel = _NotebookPanel() if self._console.is_jupyter else None
        if self._console.is_terminal and self._panel is None:
            self._live = Live(
                console=self._console, refresh_per_second=4, get_renderable=lambda: self
            )
            self._live.start()

    def stage(self, name: str) -> None:
        """Show that a new stage of the job begins."""
        if name != self._stage and not (name in TRAINING_STAGES and self._trained):
            self._say(name)
        self._stage, self._note = name, ""
        self._eta.stage(name)
        self._refresh()

    def rewind(self, step: int) -> None:
        """Show that training continues after this step."""
        self._eta.step = max(0, step)
        self._say("resumed" if step < 0 else f"resumed after step {step}")

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of a step."""
        self._metrics[self._stage] = metrics
        if stage in TRAINING_STAGES:
            self._eta.stepped(step)
            self._trained, self._note = True, ""
            self._refresh()
        # Warm start steps are so short that one line per step would flood the output.
        elif not self._is_due():
            return
        numbers = "  ".join(f"{name} {value}" for name, value in headline(metrics))
        self._say(f"{stage} {step}  {numbers}{self._left_text()}")

    def progress(self, done: float, total: float, note: str) -> None:
        """Show the progress of the stage or step; plain output prints it at most every 15 s."""
        self._eta.progress(done, total)
        self._note = note
        self._refresh()
        if self._is_due():
            self._say(f"{self._stage} {done:g}/{total:g} {note}{self._left_text()}")

    def note(self, text: str) -> None:
        """Show a sentence: a line above the panel on a terminal, elsewhere one of the lines."""
        if self._live is not None:
            self._console.print(Text(text), soft_wrap=True)
        self._note = text
        self._refresh(at_once=True)
        self._say(text)

    def finish(self, results: Mapping[str, Any]) -> None:
        """Show a table of all results and each stage's duration, including time before a resume."""
        self._finished = True
        if self._panel is not None:
            # The `Run` that the cell returns already shows the results.
            self._refresh(at_once=True)
            return
        if rows := flatten_results(results):
            self._console.print(Text(f"{self._run}"), soft_wrap=True)
            for found in ResultTable.of_metrics(rows, may_turn=True).fold(self._console.width):
                print_table(found, self._console)
        if rings := ring_rows_of(self._run):
            for found in ring_table(rings).fold(self._console.width):
                print_table(found, self._console)
        spent = results.get("seconds", {})
        for stage, seconds in spent.items():
            self._console.print(Text(f"{stage:20} {format_duration(seconds):>8}"))
        if spent:
            self._console.print(Text(f"{'total':20} {format_duration(sum(spent.values())):>8}"))

    def close(self) -> None:
        """Stop drawing; the last panel stays on the screen."""
        self._refresh(at_once=True)
        if self._live is not None:
            self._live.stop()
        if not self._finished:
            self._say(f"elapsed {format_duration(time.monotonic() - self._started)}")

    def _is_due(self) -> bool:
        """Whether another line of plain output may be printed."""
        return time.monotonic() - self._spoke >= _PLAIN_EVERY_S

    def _say(self, line: str) -> None:
        self._spoke = time.monotonic()
        if self._live is None and self._panel is None:
            clock = format_duration(self._spoke - self._started)
            self._console.print(Text(f"[{clock:>7}] {line}"), soft_wrap=True)

    def _refresh(self, *, at_once: bool = False) -> None:
        """Redraw a notebook's panel; a terminal's panel is redrawn by a timer."""
        if self._panel is not None and (at_once or self._panel.is_due()):
            self._panel.show(self._title(), self._eta.share(), self._cells(_LOG_WIDTH), self._note)

    def _title(self) -> str:
        elapsed = format_duration(time.monotonic() - self._started)
        return f"{self._stage or 'start'}  {elapsed} elapsed  {self._run}"

    def _left_text(self) -> str:
        return "".join(f"  {name} {left}" for name, left in self._times_left() if left != "?")

    def _times_left(self) -> list[tuple[str, str]]:
        """Return the name and text of the time left in the stage and, when training, in the job."""
        times = [("eta", self._eta.stage_left())]
        if self._total_steps:
            times.append(("job eta", self._eta.job_left()))
        return [(name, "?" if left is None else format_duration(left)) for name, left in times]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the panel, with no line wider than the console."""
        width = options.max_width
        title = Text.assemble(
            (f" {self._stage or 'start'} ", "bold reverse"),
            f"  {format_duration(time.monotonic() - self._started)} elapsed  {self._run}",
        )
        note = Text(self._note, style="dim")
        for line in (title, note):
            line.truncate(width, overflow="ellipsis")
        yield title
        yield ProgressBar(total=1.0, completed=self._eta.share(), width=min(_BAR_WIDTH, width))
        # A progress bar does not end its line.
        yield Text()
        cells = self._cells(width)
        facts = Table.grid(padding=(0, _GAP, 0, 0))
        facts.add_row(*(Text(name, style="dim", no_wrap=True) for name, _ in cells))
        facts.add_row(*(Text(value, style="bold", no_wrap=True) for _, value in cells))
        yield facts
        yield note

    def _cells(self, width: int) -> list[tuple[str, str]]:
        """Return as many names and values of metrics as fit, the most important first."""
        step = [("step", f"{self._eta.step}/{self._total_steps}")] if self._total_steps else []
        numbers = headline(self._metrics.get(self._stage, {}))
        cells = [*step, *self._times_left(), *numbers]
        room = width + _GAP
        for index, cell in enumerate(cells):
            room -= max(map(len, cell)) + _GAP
            if room < 0:
                return cells[:index]
        return cells
