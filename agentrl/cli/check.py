"""`agentrl check` and `agentrl doctor`: check a user's own class, and the installation."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from agentrl.cli.command_completion import complete_kind
from agentrl.cli.terminal_output import print_findings, suggest
from agentrl.text.formatting import pluralize, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SLOW_CHECK_S = 20.0
"""Seconds after which a check that is still running is announced if there is no terminal."""


def check(
    kind: Annotated[
        str,
        typer.Argument(
            help="What to check, such as `logger`; see `agentrl list`.",
            autocompletion=complete_kind,
        ),
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
            help="Keyword arguments of the target; for env, translator and player, job settings.",
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
        bool, typer.Option("--quick", help="Check only a few steps, for a slow environment.")
    ] = False,
) -> None:
    """Check that your own class or function meets its contract.

    Exits with 1 if a check fails.

    Example: agentrl check logger my_logger.py:MyLogger
    """
    from agentrl.check import findings, findings_in_process, next_command

    # Pass only the options that were given, since kinds other than `env` accept none.
    options = {"limit_s": limit} if limit is not None else {}
    if quick:
        options["quick"] = True
    arguments = (kind, target, tuple(settings or ()), deadline, options)
    with _announced_checks() as waiting:
        found = print_findings(findings_in_process(findings, arguments, deadline, waiting))
    if num_wrong := sum(one.state == "wrong" for one in found):
        typer.echo(f"{pluralize(num_wrong, 'problem')} to fix")
        _suggest_again(kind, target, settings or [], is_loaded=found[0].state != "wrong")
        raise typer.Exit(1)
    suggest(next_command(kind, target), prefix="All checks pass. ")


def doctor() -> None:
    """Check what is installed on this machine and what is missing.

    Exits with 1 if something required is missing.

    Example: agentrl doctor
    """
    from agentrl.check import installation

    found = print_findings(list(installation.examine()), as_table=True)
    if any(one.state == "missing" for one in found):
        raise typer.Exit(1)
    suggest(("train", "number_game", "--dry-run"), ("devices",))


@contextmanager
def _announced_checks() -> "Iterator[Callable[[str, float], None]]":
    """Show the running check: on a terminal in a status line, elsewhere only if it is slow."""
    console, announced = Console(stderr=True, emoji=False), set[str]()
    with console.status("") as status:

        def waiting(what: str, seconds: float) -> None:
            text = f"{what} ..." if seconds < 1 else f"{what} ... ({seconds:.0f} s)"
            status.update(escape(printable(text)))
            # A log cannot redraw a line, so print each slow check once.
            if not console.is_terminal and seconds >= _SLOW_CHECK_S and what not in announced:
                announced.add(what)
                typer.echo(printable(f"still running: {text}"), err=True)

        yield waiting


def _suggest_again(kind: str, target: str, settings: list[str], *, is_loaded: bool) -> None:
    """Suggest the next check: the same one, or the job's if the target was not found."""
    fix, job = "Fix the first one, then check again.", Path("config.yaml")
    if is_loaded or Path(target.partition(":")[0]).is_file():
        suggest(("check", kind, target, *settings), prefix=f"{fix} ")
    elif kind == "env" and job.is_file() and target in job.read_text(errors="replace"):
        # An id alone does not say which module registers the environment; a job's file does.
        suggest(("check", kind, job, *settings))
    else:
        typer.echo(fix)
