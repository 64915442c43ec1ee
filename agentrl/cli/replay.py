"""`agentrl replay`."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentrl.errors import ConfigError
from agentrl.text import printable

if TYPE_CHECKING:
    from agentrl.replay import Summary


_SPLITS = ("train", "eval", "demo")
_VOID = "void"
"""Stands for every outcome where the world failed."""


def replay(
    run: Annotated[str, typer.Argument(help="A run's folder.")],
    list_: Annotated[bool, typer.Option("--list", help="List the episodes.")] = False,
    export: Annotated[
        Path | None, typer.Option(help="Write one episode as a self-contained HTML page.")
    ] = None,
    episode: Annotated[str | None, typer.Option(help="Which one, by its id.")] = None,
    split: Annotated[str | None, typer.Option(help="Only `train`, `eval` or `demo`.")] = None,
    outcome: Annotated[
        str | None,
        typer.Option(help="Only with this outcome; `void` for every failure."),
    ] = None,
    step: Annotated[int | None, typer.Option(help="Only of this training step.")] = None,
    seed: Annotated[int | None, typer.Option(help="Only of this seed.")] = None,
    last: Annotated[int, typer.Option(help="At most so many, the latest; 0 for all.", min=0)] = 50,
) -> None:
    """See what was played.

    With --list, or --export FILE.html --episode ID.
    """
    from agentrl import replay as recorded
    from agentrl.types import Outcome

    _check_known("--split", split, _SPLITS)
    _check_known("--outcome", outcome, [*(o.value for o in Outcome), _VOID])
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
    recordings = opened.episodes()
    found = [s for s in recordings if _matches(s, wanted)]
    whatever_came = [s for s in recordings if _matches(s, {**wanted, "outcome": None})]
    _print_table(found[-last:] if last else found, len(found))
    if any(s.outcome.void for s in found):
        typer.echo(printable(_void_causes(whatever_came)))
    if recordings and not found:
        typer.echo(f"Recorded are: {_counts(recordings)}")


def _check_known(option: str, value: str | None, known: Collection[str]) -> None:
    if value is not None and value not in known:
        raise ConfigError(f"{option} {value}: must be one of {', '.join(known)}")


def _matches(summary: "Summary", wanted: Mapping[str, object]) -> bool:
    if wanted["outcome"] == _VOID and summary.outcome.void:
        wanted = {**wanted, "outcome": None}
    return all(getattr(summary, key) == value for key, value in wanted.items() if value is not None)


def _counts(episodes: Sequence["Summary"]) -> str:
    counts = Counter(f"{s.split} {s.outcome.value}" for s in episodes)
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


def _void_causes(episodes: Sequence["Summary"]) -> str:
    """Such as `3 void of 60 (5.0%): 2 x call, 1 x DeviceOffline`."""
    counts = Counter(s.cause for s in episodes if s.cause is not None)
    causes = ", ".join(f"{count} x {cause}" for cause, count in counts.most_common())
    share = counts.total() / len(episodes)
    return f"{counts.total()} void of {len(episodes)} ({share:.1%}): {causes}"


def _print_table(episodes: Sequence["Summary"], total: int) -> None:
    table = Table(
        "episode", "split", "step", "seed", "outcome", "turns", "reward", "device", "error"
    )
    for s in episodes:
        table.add_row(
            escape(s.id), s.split, str(s.step), str(s.seed), s.outcome.value, str(s.turns),
            "" if s.outcome.void else f"{s.total:g}", escape(s.device or ""), escape(s.error or ""),
        )  # fmt: skip
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)
    console.print(f"{len(episodes)} of {total} episodes")
