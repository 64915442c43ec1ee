"""`agentrl envs`: list, check and create environments."""

import importlib.util
import keyword
import re
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from agentrl.cli.check import check as check_target
from agentrl.cli.command_help import CommandGroup
from agentrl.cli.terminal_output import print_table, suggest
from agentrl.errors import ConfigError
from agentrl.files import write_durably
from agentrl.text.formatting import printable

app = typer.Typer(cls=CommandGroup, help="List or create environments.", no_args_is_help=True)
_TEMPLATES = {
    "game.py.jinja": "{name}.py",
    "rewards.py.jinja": "{name}_rewards.py",
    "config.yaml.jinja": "config.yaml",
    "test.py.jinja": "test_{name}.py",
    "readme.md.jinja": "README.md",
}
"""Templates of a new environment, and the files rendered from them."""


@app.command("list")
def list_(
    all_: Annotated[
        bool,
        typer.Option("--all", help="Include environments of Gymnasium and installed packages."),
    ] = False,
) -> None:
    """List the registered environments.

    Example: agentrl envs list --all
    """
    from agentrl import env_registry

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("env.id", "runs on", "scripted players"):
        table.add_column(column)
    for game in env_registry.registered_envs():
        place = "a phone" if game.app else "this machine"
        table.add_row(game.id, place, ", ".join(sorted(game.players)))
    print_table(table)
    if not all_:
        suggest(("envs", "list", "--all"), ("check", "env", "NumberGame-v0"))
        return
    typer.echo("\nFrom Gymnasium and installed packages:")
    # One missing package often affects many environments, so print it once.
    lacking: dict[str, list[str]] = {}
    for id, why in env_registry.third_party_envs().items():
        if why:
            lacking.setdefault(printable(why), []).append(id)
        else:
            typer.echo(f"  {id}")
    for why, ids in lacking.items():
        typer.echo(f"\nUnavailable: {why}")
        typer.echo(textwrap.fill(", ".join(ids), initial_indent="  ", subsequent_indent="  "))


@app.command(hidden=True)
def check(
    target: Annotated[
        str,
        typer.Argument(help="An environment (see env.id), or a YAML file that names one."),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Overrides.", metavar="KEY=VALUE")
    ] = None,
    deadline: Annotated[
        float, typer.Option(help="Time limit of each check, in seconds.", min=1)
    ] = 120.0,
    limit: Annotated[
        float | None, typer.Option(help="Time limit of all checks [default: 600].", min=1)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check only a few steps, for a slow environment.")
    ] = False,
) -> None:
    """Same as `agentrl check env`."""
    check_target("env", target, overrides, deadline, limit, quick)


@app.command()
def new(
    name: Annotated[
        str, typer.Argument(help="Name of the new folder and module, such as my_game.")
    ],
    where: Annotated[Path, typer.Option(help="Folder in which to create it.")] = Path(),
) -> None:
    """Create an environment from a template.

    Writes a game, its translator, reward and players, a YAML configuration and a test.

    Example: agentrl envs new my_game
    """
    folder = _write_environment(where, name)
    typer.echo(f"created {folder}")
    suggest(f"cd {shlex.quote(str(folder))} && pytest && agentrl train config.yaml")


def _write_environment(where: Path, name: str) -> Path:
    """Write a small game, its translator, players, reward, configuration and test.

    Raises:
        ConfigError: the name is not a valid module name, or is taken.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or keyword.iskeyword(name):
        raise ConfigError(
            f"{name!r} is not a valid module name; use lowercase letters, digits and underscores, "
            "as in my_game"
        )
    # The new environment's tests import it by name, so they would find the other module.
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise ConfigError(f"{name!r} is the name of an existing module; choose another name")
    folder = where / name
    if folder.exists():
        raise ConfigError(f"{folder} already exists; choose another name or another --where")
    words = {"name": name, "kind": "".join(part.title() for part in name.split("_"))}
    templates = Environment(
        loader=PackageLoader("agentrl.cli", "scaffold/templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        # Safe: the output is Python and YAML, and the name is a plain identifier.
        autoescape=False,
    )
    folder.mkdir(parents=True)
    for template, file in _TEMPLATES.items():
        text = templates.get_template(template).render(words)
        write_durably(folder / file.format(name=name), text)
    return folder
