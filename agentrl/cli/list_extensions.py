"""`agentrl list` and `agentrl algorithms`: list what can be selected, and its settings."""

import json
from collections.abc import ItemsView
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from agentrl.cli.command_completion import complete_algorithm, complete_kind
from agentrl.cli.terminal_output import print_table, suggest
from agentrl.extension_points import ALGORITHM
from agentrl.text.formatting import printable


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="List the extensions of this kind, such as `logger`.",
            metavar="KIND",
            autocompletion=complete_kind,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what can be selected or replaced: algorithms, engines, loggers and more.

    Each can be a built-in name, a name from an installed package, or your own `module:Class` or
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
    for column in (check.point_of(kind).setting, "from", "description and target"):
        table.add_column(column)
    for one in found:
        about = Text.assemble(printable(one.description), "\n", (one.target, "dim"))
        table.add_row(Text(one.name, style="bold"), Text(one.origin), about)
    print_table(table)
    if (base := check.point_of(kind).base) is not None:
        typer.echo(f"Derive your own class from {base.replace(':', '.')}")
    suggest(("check", kind, found[0].name if found else "my_file.py:MyClass"))


def _list_kinds(as_json: bool) -> None:
    from agentrl import check

    points = check.points().values()
    if as_json:
        rows = [{"kind": p.kind, "setting": p.setting, "names": p.names()} for p in points]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("kind", "count", "selected by"):
        table.add_column(column, justify="right" if column == "count" else "left")
    for point in points:
        table.add_row(point.kind, str(len(point.names())), point.setting)
    print_table(table)
    suggest(("list", "logger"))


def algorithms(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show all settings of this algorithm.",
            metavar="NAME",
            autocompletion=complete_algorithm,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the algorithms, or all settings of one.

    Select one with algorithm.name, or your own as module:Class or path/file.py:Class. Every setting
    can be overridden.

    Example: agentrl algorithms dapo
    """
    if name is None:
        names = [extension.name for extension in ALGORITHM.extensions()]
        chosen = {one: _defaults(one) for one in names}
        typer.echo(json.dumps(chosen, indent=2)) if as_json else _list_algorithms(names)
        return
    if as_json:
        typer.echo(json.dumps(_defaults(name), indent=2))
        return
    _show_algorithm(name)
    suggest(("train", "number_game", f"algorithm.name={name}"))


def _list_algorithms(names: list[str]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("algorithm.name", no_wrap=True)
    table.add_column("description (source), and settings that differ from the defaults")
    for name in names:
        # Stacked, because the two tables would not fit side by side in 80 columns.
        algorithm, usual = ALGORITHM.resolve(name), _shared_defaults()
        differs = ", ".join(
            f"{key}={_text(value)}"
            for key, value in _flat_defaults(name)
            if key != "name" and usual.get(key) != value
        )
        table.add_row(name, f"{algorithm.about} ({algorithm.source})\n{differs}")
    print_table(table)
    suggest(("algorithms", "grpo"), ("train", "number_game", "algorithm.name=grpo"))


def _show_algorithm(name: str) -> None:
    algorithm, usual = ALGORITHM.resolve(name), _shared_defaults()
    typer.echo(f"{name}: {algorithm.about} ({algorithm.source})\n\nalgorithm:")
    shown: list[str] = []
    for key, value in _flat_defaults(name):
        *sections, last = key.split(".")
        for depth, section in enumerate(sections):
            if shown[: depth + 1] != sections[: depth + 1]:
                typer.echo(f"{'  ' * (depth + 1)}{section}:")
        shown = sections
        changed = ""
        if key not in usual:
            changed = "   # its own"
        elif key != "name" and usual[key] != value:
            changed = f"   # default {_text(usual[key])}"
        typer.echo(f"{'  ' * (len(sections) + 1)}{last}: {_text(value)}{changed}")


def _defaults(name: str) -> dict[str, Any]:
    from agentrl.config import algorithm_defaults

    return asdict(algorithm_defaults(name))


def _flat_defaults(name: str) -> ItemsView[str, Any]:
    from agentrl.config import flat_settings

    return flat_settings(_defaults(name)).items()


def _shared_defaults() -> dict[str, Any]:
    from agentrl.config import AlgorithmConfig, flat_settings

    return flat_settings(asdict(AlgorithmConfig(name="")))


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
