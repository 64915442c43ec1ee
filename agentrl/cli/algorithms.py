"""`agentrl algorithms`: list the algorithms and their settings."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from agentrl.cli.command_help import complete_algorithm
from agentrl.cli.terminal import print_table, suggest
from agentrl.extension_points import ALGORITHM


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

    algorithm.name selects one, which may be your own: module:Class or path/file.py:Class. Every
    setting can be overridden.

    Example: agentrl algorithms dapo
    """
    if name is None:
        names = [extension.name for extension in ALGORITHM.extensions()]
        chosen = {one: _defaults(one) for one in names}
        typer.echo(json.dumps(chosen, indent=2)) if as_json else _list(names)
        return
    if as_json:
        typer.echo(json.dumps(_defaults(name), indent=2))
        return
    _show(name)
    suggest(("train", "number_game", f"algorithm.name={name}"))


def _list(names: list[str]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("algorithm.name", no_wrap=True)
    table.add_column("what it does (source), and its settings that differ from the defaults")
    for name in names:
        # One column: side by side, the two would not fit into 80 columns.
        algorithm, usual = ALGORITHM.resolve(name), _shared_defaults()
        differs = ", ".join(
            f"{key}={_text(value)}"
            for key, value in _flat(_defaults(name))
            if key != "name" and usual.get(key) != value
        )
        table.add_row(name, f"{algorithm.about} ({algorithm.source})\n{differs}")
    print_table(table)
    suggest(("algorithms", "grpo"), ("train", "number_game", "algorithm.name=grpo"))


def _show(name: str) -> None:
    algorithm, usual = ALGORITHM.resolve(name), _shared_defaults()
    typer.echo(f"{name}: {algorithm.about} ({algorithm.source})\n\nalgorithm:")
    shown: list[str] = []
    for key, value in _flat(_defaults(name)):
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


def _shared_defaults() -> dict[str, Any]:
    from agentrl.config import AlgorithmConfig

    return dict(_flat(asdict(AlgorithmConfig(name=""))))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
