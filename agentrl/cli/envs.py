"""`agentrl envs`: what can be played, what is wrong with it, and the start of one's own."""

import textwrap
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentrl.cli.environment_argument import target_of
from agentrl.errors import ConfigError
from agentrl.text import printable

app = typer.Typer(help="Environments: list, check, start one.", no_args_is_help=True)
_COLOURS = {"ok": "green", "note": "yellow", "wrong": "red"}


@app.command("list")
def list_(
    all_: Annotated[
        bool, typer.Option("--all", help="Gymnasium's own and installed packages', too.")
    ] = False,
) -> None:
    """List the environments that are known by name."""
    from agentrl import env

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("env.id", "played on", "players"):
        table.add_column(column)
    for game in env.games():
        place = "a phone" if game.app else "this machine"
        table.add_row(game.id, place, ", ".join(sorted(game.players)))
    Console().print(table)
    if not all_:
        typer.echo("Gymnasium's own and those of installed packages: agentrl envs list --all")
        return
    typer.echo("\nOf Gymnasium and installed packages:")
    lacking: dict[str, list[str]] = {}
    for id, why in env.foreign().items():
        if why:
            lacking.setdefault(printable(why), []).append(id)
        else:
            typer.echo(f"  {id}")
    for why, ids in lacking.items():
        typer.echo(f"\nNot here: {why}")
        typer.echo(textwrap.fill(", ".join(ids), initial_indent="  ", subsequent_indent="  "))


@app.command()
def check(
    target: Annotated[
        str,
        typer.Argument(help="An environment as env.id names it, or a YAML file that names one."),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings.", metavar="KEY=VALUE")
    ] = None,
    steps: Annotated[int, typer.Option(help="Of each random game, at most.", min=1)] = 50,
    deadline: Annotated[
        float, typer.Option(help="Seconds that each finding may take.", min=1)
    ] = 120.0,
) -> None:
    """Say what is wrong with an environment, and how to mend it.

    Exits with 1 if something is to be mended.
    """
    from agentrl.config import resolve
    from agentrl.rollout.env_check.isolated_check import examine_apart

    settings = resolve(target_of(target), overrides or []).env
    console, bad, told = Console(), 0, set[str]()
    for found in examine_apart(settings, steps, deadline):
        bad += found.state == "wrong"
        line = f"[{_COLOURS[found.state]}]{found.state:5}[/] [bold]{escape(found.what):19}[/] "
        if found.state == "wrong" and found.detail in told:
            console.print(f"{line}the same", soft_wrap=True)
            continue
        told.add(found.detail)
        console.print(line + escape(printable(found.detail)), soft_wrap=True)
        if found.mend and found.state != "ok":
            console.print(f"      mend: {escape(printable(found.mend))}", soft_wrap=True)
    if bad:
        typer.echo(f"{bad} to be mended")
        raise typer.Exit(1)
    typer.echo("It can be played and trained on.")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Of the folder and its module, such as my_game.")],
    where: Annotated[Path, typer.Option(help="The folder to put it in.")] = Path(),
) -> None:
    """Write the start of an environment: a game, its words, reward, players, settings and test."""
    from agentrl.cli.scaffold import write

    folder = write(where, name)
    typer.echo(f"{folder} is there. Now:")
    typer.echo(f"  cd {folder} && pytest && agentrl train config.yaml")


def serve(
    environment: Annotated[
        str,
        typer.Argument(help="An environment as env.id names it, or a YAML file that names one."),
    ] = "",
    host: Annotated[str, typer.Option(help="The address to serve at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 8100,
    most: Annotated[int, typer.Option(help="Environments at a time.", min=1)] = 256,
    idle: Annotated[float, typer.Option(help="Seconds until one is closed.", min=1)] = 900.0,
    program: Annotated[
        bool, typer.Option("--program", help="Print the server's program: it stands alone.")
    ] = False,
) -> None:
    """Serve an environment to jobs elsewhere: env.id=http://HOST:PORT.

    AGENTRL_ENV_TOKEN, where it is set, must be the same for both.
    """
    from agentrl import env
    from agentrl.config import resolve
    from agentrl.serving import env_server

    if program:
        typer.echo(Path(env_server.__file__).read_text(encoding="utf-8"), nl=False)
        return
    if not environment:
        raise ConfigError("ENVIRONMENT is missing: an id, module:Class or path/file.py:Class.")
    id = resolve(target_of(environment)).env.id
    env.game(id)
    given = ["--host", host, "--port", str(port), "--most", str(most), "--idle", str(idle)]
    try:
        env_server.main([id, *given])
    except env_server.Unusable as error:
        raise ConfigError(str(error)) from error
