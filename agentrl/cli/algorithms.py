"""`agentrl algorithms`: list the algorithms and their settings."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from agentrl.cli.terminal import suggest
from agentrl.config import DEFAULTS, PRESETS, settings_of
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean


def algorithms(
    name: Annotated[
        str | None, typer.Argument(help="Show all settings of this algorithm.", metavar="NAME")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the algorithms, or all settings of one.

    algorithm.name selects one; every setting can still be overridden.

    Example: agentrl algorithms dapo
    """
    if name is None:
        chosen = {name: settings_of(name) for name in PRESETS}
        typer.echo(json.dumps(chosen, indent=2)) if as_json else _list()
        return
    if name not in PRESETS:
        raise ConfigError(
            f"algorithms: unknown algorithm {name!r}{did_you_mean(name, PRESETS)}. "
            f"Known: {', '.join(PRESETS)}"
        )
    if as_json:
        typer.echo(json.dumps(settings_of(name), indent=2))
        return
    _show(name)
    suggest(("train", "number_game", f"algorithm.name={name}"))


def _list() -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("algorithm.name", no_wrap=True)
    table.add_column("what it does (source), and its settings that differ from the defaults")
    for name, preset in PRESETS.items():
        # One column: side by side, the two would not fit into 80 columns.
        differs = ", ".join(f"{key}={_text(value)}" for key, value in preset.settings.items())
        table.add_row(name, f"{preset.about} ({preset.source})\n{differs}")
    Console().print(table)
    suggest(("algorithms", "grpo"), ("train", "number_game", "algorithm.name=grpo"))


def _show(name: str) -> None:
    preset = PRESETS[name]
    typer.echo(f"{name}: {preset.about} ({preset.source})\n\nalgorithm:\n  name: {name}")
    for key, value in settings_of(name).items():
        changed = "" if value == _plain(DEFAULTS[key]) else f"   # default {_text(DEFAULTS[key])}"
        typer.echo(f"  {key}: {_text(value)}{changed}")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return str(_plain(value)).lower() if isinstance(value, bool) else str(_plain(value))
