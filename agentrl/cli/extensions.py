"""`agentrl list` and `agentrl check`: what users can replace, and whether their own works."""

import json
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from agentrl.cli.command_help import complete_kind
from agentrl.cli.terminal import print_table, suggest
from agentrl.text import pluralize, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentrl.findings import Finding

_SLOW_CHECK_S = 20.0
"""A check that takes longer is announced in a log."""
_LABELS = {"ok": "[green]ok[/]    ", "note": "[yellow]note[/]  ", "wrong": "[red]FAILED[/]"}


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="Show all of this kind, such as `logger`.",
            metavar="KIND",
            autocompletion=complete_kind,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what can be selected or replaced: algorithms, engines, loggers and more.

    Each is a built-in name, a name of an installed package, or your own `module:Class` or
    `path/file.py:Class`.

    Example: agentrl list logger
    """
    from agentrl import check as checking

    if kind is None:
        _list_kinds(as_json)
        return
    found = checking.listed(kind)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in (checking.point_of(kind).setting, "from", "what it is, and where"):
        table.add_column(column)
    for one in found:
        about = Text.assemble(printable(one.description), "\n", (one.target, "dim"))
        table.add_row(Text(one.name, style="bold"), Text(one.origin), about)
    print_table(table)
    if (base := checking.point_of(kind).base) is not None:
        typer.echo(f"Your own derives from {base.replace(':', '.')}")
    suggest(("check", kind, found[0].name if found else "my_file.py:MyClass"))


def _list_kinds(as_json: bool) -> None:
    from agentrl import check as checking

    points = checking.points().values()
    if as_json:
        rows = [{"kind": p.kind, "setting": p.setting, "names": p.names()} for p in points]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("kind", "how many", "selected by"):
        table.add_column(column, justify="right" if column == "how many" else "left")
    for point in points:
        table.add_row(point.kind, str(len(point.names())), point.setting)
    print_table(table)
    suggest(("list", "logger"))


def check(
    kind: Annotated[
        str,
        typer.Argument(help="Such as `logger`; see `agentrl list`.", autocompletion=complete_kind),
    ],
    target: Annotated[
        str,
        typer.Argument(
            help="A name, `module:Class` or `path/file.py:Class`; for env also a YAML file."
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            help="Its keyword arguments; for env, translator and player settings of the job.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option(help="Time limit of each check, in seconds.", min=1)
    ] = 120.0,
    limit: Annotated[
        float | None,
        typer.Option(help="Time limit of all checks of an environment [default: 600].", min=1),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="For a slow environment: check only a few steps.")
    ] = False,
) -> None:
    """Check that your own class or function keeps its contract.

    Exits with 1 if a check fails.

    Example: agentrl check logger my_logger.py:MyLogger
    """
    from agentrl import check as checking
    from agentrl.findings import findings_in_process

    options = {"limit_s": limit} if limit is not None else {}
    if quick:
        options["quick"] = True
    arguments = (kind, target, tuple(settings or ()), deadline, options)
    with _announced_checks() as waiting:
        findings = findings_in_process(checking.findings, arguments, deadline, waiting)
        found = print_findings(findings)
    if num_wrong := sum(one.state == "wrong" for one in found):
        typer.echo(f"{pluralize(num_wrong, 'problem')} to fix")
        _suggest_again(kind, target, settings or [], is_loaded=found[0].state != "wrong")
        raise typer.Exit(1)
    suggest(checking.next_command(kind, target), prefix="All checks pass. ")


@contextmanager
def _announced_checks() -> "Iterator[Callable[[str, float], None]]":
    """Show which check is running: on a terminal below the others, elsewhere if it is slow."""
    console, announced = Console(stderr=True, emoji=False), set[str]()
    with console.status("") as status:

        def waiting(what: str, seconds: float) -> None:
            text = f"{what} ..." if seconds < 1 else f"{what} ... ({seconds:.0f} s)"
            status.update(escape(printable(text)))
            if not console.is_terminal and seconds >= _SLOW_CHECK_S and what not in announced:
                announced.add(what)
                typer.echo(printable(f"under way: {text}"), err=True)

        yield waiting


def _suggest_again(kind: str, target: str, settings: list[str], *, is_loaded: bool) -> None:
    """Suggest the command to run after the fix, which differs if the target is unknown."""
    fix, job = "Fix the first one, then check again.", Path("config.yaml")
    if is_loaded or Path(target.partition(":")[0]).is_file():
        suggest(("check", kind, target, *settings), prefix=f"{fix} ")
    elif kind == "env" and job.is_file() and target in job.read_text(errors="replace"):
        # Only a configuration, or MODULE:ID, says which module registers an environment.
        suggest(("check", kind, job, *settings))
    else:
        typer.echo(fix)


def print_findings(found: "Iterator[Finding]") -> "list[Finding]":
    """Print one line per check, and how to fix it; returns all findings."""
    console, printed, shown = Console(emoji=False), list["Finding"](), set[str]()
    for one in found:
        printed.append(one)
        if one.state == "wrong" and one.detail:
            if one.detail in shown:
                one = replace(one, detail="as above", fix="")
            shown.add(one.detail)
        text = f"{one.what}: {one.detail}" if one.detail else one.what
        console.print(f"{_LABELS[one.state]}  {escape(printable(text))}", soft_wrap=True)
        if one.fix:
            console.print(f"        fix: {escape(printable(one.fix))}", soft_wrap=True)
    return printed
