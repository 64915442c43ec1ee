"""`agentrl replay`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from agentrl.replay import Summary


def replay(
    run: Annotated[str, typer.Argument(help="A run's folder.")],
    list_: Annotated[bool, typer.Option("--list", help="List the episodes.")] = False,
    export: Annotated[
        Path | None, typer.Option(help="Write one episode as a self-contained HTML page.")
    ] = None,
    episode: Annotated[str | None, typer.Option(help="Which one, by its id.")] = None,
    split: Annotated[str | None, typer.Option(help="Only `train`, `eval` or `demo`.")] = None,
    outcome: Annotated[str | None, typer.Option(help="Only with this outcome.")] = None,
    step: Annotated[int | None, typer.Option(help="Only of this training step.")] = None,
    seed: Annotated[int | None, typer.Option(help="Only of this seed.")] = None,
    last: Annotated[int, typer.Option(help="At most so many, the latest; 0 for all.")] = 50,
) -> None:
    """See what was played.

    With --list, or --export FILE.html --episode ID.
    """
    from agentrl import replay as recorded

    opened = recorded.open(run)
    if export is not None:
        if episode is None:
            raise ConfigError("--export needs --episode ID; --list shows the ids")
        if export.suffix != ".html":
            raise ConfigError(f"--export {export}: only .html is written")
        from agentrl.replay.html import export_html

        export_html(opened, episode, export)
        typer.echo(f"wrote {export}")
        return
    if not list_:
        raise ConfigError("say --list, or --export FILE.html --episode ID")
    wanted = {"split": split, "outcome": outcome, "step": step, "seed": seed, "id": episode}
    found = [s for s in opened.episodes() if _matches(s, wanted)]
    _print_table(found[-last:] if last else found, len(found))


def _matches(summary: "Summary", wanted: Mapping[str, object]) -> bool:
    return all(getattr(summary, key) == value for key, value in wanted.items() if value is not None)


def _print_table(episodes: Sequence["Summary"], total: int) -> None:
    table = Table(
        "episode", "split", "step", "seed", "outcome", "turns", "reward", "device", "error"
    )
    for s in episodes:
        table.add_row(
            escape(s.id), s.split, str(s.step), str(s.seed), s.outcome.value, str(s.turns),
            f"{s.total:g}", escape(s.device or ""), escape(s.error or ""),
        )  # fmt: skip
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)
    console.print(f"{len(episodes)} of {total} episodes")
