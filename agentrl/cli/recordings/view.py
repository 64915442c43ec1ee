"""`agentrl view`: browse a run in the browser."""

from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlsplit

import typer

from agentrl import extras
from agentrl.cli.command_completion import complete_run
from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from agentrl.replay import Run


def view(
    run: Annotated[
        str,
        typer.Argument(help="A run folder, or a folder of runs.", autocompletion=complete_run),
    ] = "runs",
    episode: Annotated[
        str | None, typer.Option(help="Print the address of this episode's page.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Print the address of this group's page.")
    ] = None,
    beside: Annotated[
        str | None, typer.Option("--with", help="Another run, to compare with.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port to serve at; 0 picks a free one; default: 8200 or the next free one.",
            min=0,
            max=65535,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """View a run, or all runs in a folder, in the browser, even while jobs are running.

    Example: agentrl view runs/NAME --with runs/OTHER
    """
    from agentrl import replay
    from agentrl.runs.run_discovery import is_folder_of_runs

    page = ""
    if not is_folder_of_runs(run):
        page = _page(replay.open(run, may_be_unplayed=True), episode, group)
    elif episode or group or beside:
        raise ConfigError(
            f"{run} is a folder of runs, but --episode, --group and --with need a single run"
        )
    # The viewer's libraries are an optional extra, because jobs don't need them.
    try:
        from agentrl.viewer.viewer_server import DEFAULT_PORT, serve
    except ImportError as error:
        raise ConfigError(
            f"the viewer needs {error.name}, which is not installed; run: {extras.GET_PAGE} "
            "(agentrl episodes and agentrl export work without it)"
        ) from None

    def ready(url: str) -> None:
        moved = port is None and urlsplit(url).port != DEFAULT_PORT
        note = f"port {DEFAULT_PORT} is in use; " if moved else ""
        typer.echo(f"{url}  ({note}Ctrl-C stops the server)")

    serve(run, host=host, port=port, page=page, other=beside, ready=ready)


def _page(run: "Run", episode: str | None, group: str | None) -> str:
    """Return the path of an episode's or group's page; empty for the overview."""
    from agentrl.replay import Filter

    if episode is not None and group is not None:
        raise ConfigError("give either --episode or --group, not both; each has its own page")
    name = episode or group
    if name is None:
        return ""
    if not run.episodes(Filter(id=episode, group=group)):
        kind = "episode" if group is None else "group"
        raise ConfigError(f"{run.path} has no {kind} {name!r}; list all with agentrl episodes RUN")
    return f"{'episodes' if group is None else 'groups'}/{quote(name)}"
