"""`agentrl check` and `agentrl doctor`: check a user's own class, and the installation."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from agentrl.cli.command_help import complete_kind
from agentrl.cli.terminal import print_findings, suggest
from agentrl.text import pluralize, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SLOW_CHECK_S = 20.0
"""Without a terminal, a check is announced once it takes this long."""


def check(
    kind: Annotated[
        str,
        typer.Argument(help="Such as `logger`; see `agentrl list`.", autocompletion=complete_kind),
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
            help="The target's keyword arguments; for env, translator and player a job's settings.",
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
        bool, typer.Option("--quick", help="For a slow environment: check only a few steps.")
    ] = False,
) -> None:
    """Check that your own class or function keeps its contract.

    Exits with 1 if a check fails.

    Example: agentrl check logger my_logger.py:MyLogger
    """
    from agentrl.check import findings, findings_in_process, next_command

    # Only the options that were given: kinds other than `env` accept none.
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
    """Show which check is running: on a terminal in the last line, elsewhere if it is slow."""
    console, announced = Console(stderr=True, emoji=False), set[str]()
    with console.status("") as status:

        def waiting(what: str, seconds: float) -> None:
            text = f"{what} ..." if seconds < 1 else f"{what} ... ({seconds:.0f} s)"
            status.update(escape(printable(text)))
            # A log cannot redraw a line, so print each slow check once.
            if not console.is_terminal and seconds >= _SLOW_CHECK_S and what not in announced:
                announced.add(what)
                typer.echo(printable(f"under way: {text}"), err=True)

        yield waiting


def _suggest_again(kind: str, target: str, settings: list[str], *, is_loaded: bool) -> None:
    """Suggest how to check again after the fix, or where to look if the target was not found."""
    fix, job = "Fix the first one, then check again.", Path("config.yaml")
    if is_loaded or Path(target.partition(":")[0]).is_file():
        suggest(("check", kind, target, *settings), prefix=f"{fix} ")
    elif kind == "env" and job.is_file() and target in job.read_text(errors="replace"):
        # Only a configuration or MODULE:ID says which module registers the environment.
        suggest(("check", kind, job, *settings))
    else:
        typer.echo(fix)
