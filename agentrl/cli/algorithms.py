"""`agentrl algorithms`: what can be learned with, and its settings."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from agentrl.config import DEFAULTS, PRESETS, settings_of
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean


def algorithms(
    name: Annotated[
        str | None, typer.Argument(help="Show all settings of this one.", metavar="NAME")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the algorithms (`algorithm.name`), or all settings of one.

    Whatever a preset sets can be set otherwise beside its name.
    """
    if name is None:
        chosen = {name: settings_of(name) for name in PRESETS}
        typer.echo(json.dumps(chosen, indent=2)) if as_json else _list()
        return
    if name not in PRESETS:
        raise ConfigError(
            f"algorithms: {name!r} is none of them{did_you_mean(name, PRESETS)}. "
            f"Known: {', '.join(PRESETS)}"
        )
    typer.echo(json.dumps(settings_of(name), indent=2)) if as_json else _show(name)


def _list() -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("algorithm.name", no_wrap=True)
    table.add_column("what it does (source), and where it differs")
    for name, preset in PRESETS.items():
        # Side by side, these would leave each other less room than their words take.
        differs = ", ".join(f"{key}={_told(value)}" for key, value in preset.settings.items())
        table.add_row(name, f"{preset.about} ({preset.source})\n{differs}")
    Console().print(table)
    typer.echo("\nAll settings of one: agentrl algorithms NAME")


def _show(name: str) -> None:
    preset = PRESETS[name]
    typer.echo(f"{name}: {preset.about} ({preset.source})\n\nalgorithm:\n  name: {name}")
    for key, value in settings_of(name).items():
        changed = "" if value == _plain(DEFAULTS[key]) else f"   # elsewhere {_told(DEFAULTS[key])}"
        typer.echo(f"  {key}: {_told(value)}{changed}")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _told(value: Any) -> str:
    return str(_plain(value)).lower() if isinstance(value, bool) else str(_plain(value))
