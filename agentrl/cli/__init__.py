"""The command line, one file per command. Heavy imports happen inside the commands."""

import sys
from typing import Annotated

import typer

from agentrl import __version__
from agentrl.cli import (
    algorithms,
    device_commands,
    envs,
    episodes,
    evaluate,
    export,
    install_doctor,
    merge,
    phone,
    play,
    prune,
    rescore,
    serve_reward,
    terminal_logging,
    train,
    view,
)
from agentrl.errors import AgentRLError, ConfigError
from agentrl.folder_links import check_links
from agentrl.text import printable

app = typer.Typer(
    help="Train vision-language agents that act on screens.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("train")(train.train)
app.command("eval")(evaluate.evaluate)
app.command("play")(play.play)
app.command("view")(view.view)
app.command("episodes")(episodes.episodes)
app.command("export")(export.export)
app.command("merge")(merge.merge)
app.command(
    "replay",
    hidden=True,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(view.replay)
app.command("prune")(prune.prune)
app.command("rescore")(rescore.rescore)
app.command("rehearse")(rescore.rehearse)
app.command("algorithms")(algorithms.algorithms)
app.command("serve-reward")(serve_reward.serve_reward)
app.command("doctor")(install_doctor.doctor)
app.command("serve-env")(envs.serve)
app.add_typer(phone.app, name="phone")
app.add_typer(device_commands.app, name="devices")
app.add_typer(envs.app, name="envs")


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"agentrl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also log informational messages.")
    ] = False,
) -> None:
    terminal_logging.set_up(verbose)


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command.

    Returns:
        The exit code: 2 for a user's mistake, 130 when interrupted, 1 for any other failure.
    """
    try:
        check_links()
        app(arguments, prog_name="agentrl")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except AgentRLError as error:
        sys.stderr.write(printable(f"{type(error).__name__}: {error}") + "\n")
        return 2 if isinstance(error, ConfigError) else 1
    except OSError as error:  # such as a full disk
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0
