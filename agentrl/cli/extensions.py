"""`agentrl list`: what users can replace, and what there is to choose from."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from agentrl.cli.command_help import complete_kind
from agentrl.cli.terminal import print_table, suggest
from agentrl.text import printable


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
    from agentrl import check

    if kind is None:
        _list_kinds(as_json)
        return
    found = check.listed(kind)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in (check.point_of(kind).setting, "from", "what it is, and where"):
        table.add_column(column)
    for one in found:
        about = Text.assemble(printable(one.description), "\n", (one.target, "dim"))
        table.add_row(Text(one.name, style="bold"), Text(one.origin), about)
    print_table(table)
    if (base := check.point_of(kind).base) is not None:
        typer.echo(f"Your own derives from {base.replace(':', '.')}")
    suggest(("check", kind, found[0].name if found else "my_file.py:MyClass"))


def _list_kinds(as_json: bool) -> None:
    from agentrl import check

    points = check.points().values()
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
