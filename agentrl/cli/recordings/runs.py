"""`agentrl runs`: list runs with their results."""

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from agentrl.cli.command_completion import complete_run
from agentrl.cli.terminal_output import print_table, suggest, table_width
from agentrl.text.formatting import one_line, shown_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentrl.runs.run_summary import RunSummary

_LEFT_OUT = ("started", "seed", "algorithm", "time", "environment", "steps", "state")
"""Columns to omit on a narrow terminal, in this order."""
_ERRORS_SHOWN = 3
_LONGEST_ERROR = 300


def runs(
    folder: Annotated[
        str, typer.Argument(help="Folder that contains the runs.", autocompletion=complete_run)
    ] = "runs",
    environment: Annotated[
        str | None, typer.Option(help="Only runs whose environment's name contains this text.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each run.")
    ] = False,
) -> None:
    """List the runs in a folder with their results.

    Example: agentrl runs --environment FrozenLake
    """
    from agentrl.files import path_of
    from agentrl.runs.job_failure import ERROR_FILE
    from agentrl.runs.run_discovery import find_runs
    from agentrl.runs.run_summary import summarize

    path = path_of(folder, "folder")
    wanted = (environment or "").lower()
    found = [summarize(run, path) for run in find_runs(path)]
    found.sort(key=lambda one: one.started, reverse=True)
    shown = [one for one in found if wanted in one.environment.lower()]
    if as_json:
        for one in shown:
            typer.echo(json.dumps(one.to_dict()))
        return
    if not shown:
        of = f" of an environment with {environment!r} in its name" if found else ""
        typer.echo(f"No runs{of} in {path}.")
        return
    print_runs(shown)
    for one in [one for one in shown if one.failure][:_ERRORS_SHOWN]:
        message, file = one_line(str(one.failure), _LONGEST_ERROR), one.path / ERROR_FILE
        typer.echo(f"{one.name} failed: {message} (traceback: {shown_path(file)})")
    suggest(("view", folder), ("view", shown[0].path))


def print_runs(found: "Sequence[RunSummary]") -> None:
    """Print a table, omitting columns that do not fit a narrow terminal."""
    from agentrl.config import RINGS

    rings = [ring for ring in RINGS if any(ring in one.rings for one in found)]
    rows, gap = [_row(one, rings) for one in found], 3
    shown = list(rows[0])
    widths = {name: max(cell_len(name), *(cell_len(row[name]) for row in rows)) for name in shown}
    # Otherwise rich would shrink all columns until none is legible.
    for name in _LEFT_OUT:
        if sum(widths[name] + gap for name in shown) + 1 > table_width():
            shown.remove(name)
    table = Table(*shown)
    for row in rows:
        table.add_row(*(escape(row[name]) for name in shown))
    print_table(table)
    if left_out := [name for name in rows[0] if name not in shown]:
        typer.echo(f"Columns hidden on this narrow terminal: {', '.join(left_out)}")


def _row(one: "RunSummary", rings: "Sequence[str]") -> dict[str, str]:
    from agentrl.confidence_intervals import with_interval
    from agentrl.text.formatting import format_duration

    failed_with = None if one.failure is None else one.failure.type
    return {
        "run": one.name,
        "environment": one.environment,
        "algorithm": one.algorithm,
        "seed": str(one.seed),
        "steps": str(one.step) if one.steps in (None, one.step) else f"{one.step}/{one.steps}",
        "result (95% interval)": one.result,
        **{f"unseen {ring}": with_interval(one.rings.get(ring)) for ring in rings},
        "time": format_duration(one.seconds),
        "state": ": ".join(filter(None, (one.state, failed_with, one.stage))),
        "started": time.strftime("%Y-%m-%d %H:%M", time.localtime(one.started)),
    }
