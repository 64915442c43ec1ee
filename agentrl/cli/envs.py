"""`agentrl envs`: list, create and serve environments."""

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
from agentrl.cli.command_help import CommandGroup, complete_environment
from agentrl.cli.terminal import print_table, suggest
from agentrl.errors import ConfigError
from agentrl.files import write_durably
from agentrl.text import printable

app = typer.Typer(cls=CommandGroup, help="List and create environments.", no_args_is_help=True)
_TEMPLATES = {
    "game.py.jinja": "{name}.py",
    "rewards.py.jinja": "{name}_rewards.py",
    "config.yaml.jinja": "config.yaml",
    "test.py.jinja": "test_{name}.py",
    "readme.md.jinja": "README.md",
}
"""The templates of a new environment, and the files they become."""


@app.command("list")
def list_(
    all_: Annotated[
        bool, typer.Option("--all", help="Also those of Gymnasium and installed packages.")
    ] = False,
) -> None:
    """List the registered environments.

    Example: agentrl envs list --all
    """
    from agentrl import env

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("env.id", "runs on", "scripted players"):
        table.add_column(column)
    for game in env.registered_envs():
        place = "a phone" if game.app else "this machine"
        table.add_row(game.id, place, ", ".join(sorted(game.players)))
    print_table(table)
    if not all_:
        suggest(("envs", "list", "--all"), ("check", "env", "NumberGame-v0"))
        return
    typer.echo("\nFrom Gymnasium and installed packages:")
    lacking: dict[str, list[str]] = {}
    for id, why in env.third_party_envs().items():
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
        bool, typer.Option("--quick", help="For a slow environment: check only a few steps.")
    ] = False,
) -> None:
    """The same as `agentrl check env`."""
    check_target("env", target, overrides, deadline, limit, quick)


@app.command()
def new(
    name: Annotated[
        str, typer.Argument(help="Name of the folder and its module, such as my_game.")
    ],
    where: Annotated[Path, typer.Option(help="Parent folder.")] = Path(),
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

    Args:
        where: parent folder.
        name: name of the new folder and its module.

    Returns:
        The new folder.

    Raises:
        ConfigError: the name is not a valid module name, or is taken.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    _check_name(name)
    folder = where / name
    if folder.exists():
        raise ConfigError(f"{folder} already exists; choose another name or another --where")
    words = {"name": name, "kind": "".join(part.title() for part in name.split("_"))}
    templates = Environment(
        loader=PackageLoader("agentrl.cli", "scaffold/templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # the output is Python and YAML, and the name is a plain identifier
    )
    folder.mkdir(parents=True)
    for template, file in _TEMPLATES.items():
        text = templates.get_template(template).render(words)
        write_durably(folder / file.format(name=name), text)
    return folder


def _check_name(name: str) -> None:
    """Check that a name is a valid module name and not taken.

    Raises:
        ConfigError: it is not valid, or it is taken.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or keyword.iskeyword(name):
        raise ConfigError(
            f"{name!r} is not a module name; use lowercase letters, digits and underscores, "
            "as in my_game"
        )
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise ConfigError(f"{name!r} is the name of an existing module; choose another one")


def standalone_program() -> str:
    """The environment server as one file, which needs no agentrl."""
    from agentrl import web_access
    from agentrl.rollout.environments import env_calls, env_server

    program = Path(str(env_server.__file__)).read_text("utf-8")
    for module in (env_calls, web_access):
        text = Path(str(module.__file__)).read_text("utf-8")
        text = text.replace("from __future__ import annotations\n", "")
        imports = rf"(?m)^from {re.escape(module.__name__)} import .*\n"
        program = re.sub(imports, text.replace("\\", r"\\"), program)
    return program


def serve(
    environment: Annotated[
        str,
        typer.Argument(
            help="An environment (see env.id), or a YAML file that names one.",
            autocompletion=complete_environment,
        ),
    ] = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535)] = 8100,
    most: Annotated[int, typer.Option(help="Most environments open at a time.", min=1)] = 256,
    idle: Annotated[
        float, typer.Option(help="Close an environment after this many idle seconds.", min=1)
    ] = 900.0,
    program: Annotated[
        bool, typer.Option("--program", help="Print the server as a standalone program instead.")
    ] = False,
) -> None:
    """Serve an environment to jobs on other machines.

    The jobs set env.id=http://HOST:PORT. If AGENTRL_ENV_TOKEN is set, it must be the same on both
    sides.

    Example: agentrl serve-env FrozenLake-v1 --host 0.0.0.0
    """
    from agentrl import env
    from agentrl.config import resolve
    from agentrl.rollout.environments import env_server
    from agentrl.training.target import named_job

    if program:
        typer.echo(standalone_program(), nl=False)
        return
    if not environment:
        raise ConfigError("ENVIRONMENT is missing; give an id, module:Class or path/file.py:Class.")
    id = resolve(named_job(environment)).env.id
    env.find_env(id)
    given = ["--host", host, "--port", str(port), "--most", str(most), "--idle", str(idle)]
    try:
        env_server.main([id, *given])
    except env_server.InvalidRequest as error:
        raise ConfigError(str(error)) from error
