"""`agentrl replay`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentrl.errors import ConfigError
from agentrl.text import one_line, printable

if TYPE_CHECKING:
    from agentrl.replay import Filter, Run, Summary


def replay(
    run: Annotated[str, typer.Argument(help="A run's folder.")],
    list_: Annotated[bool, typer.Option("--list", help="List the episodes.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write an episode (.html, .gif, .mp4, .png), a group or a report (.html)."
        ),
    ] = None,
    episode: Annotated[
        str | None,
        typer.Option(help="Which one, by its id: opens its page, or goes with --export."),
    ] = None,
    group: Annotated[str | None, typer.Option(help="Which group, by its id, as --episode.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Export the whole run.")] = False,
    split: Annotated[str | None, typer.Option(help="Only `train`, `eval` or `demo`.")] = None,
    label: Annotated[
        str | None, typer.Option(help="Only of this play, such as `after-sampled` or `human`.")
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(help="Only with this outcome; `void` for every failure."),
    ] = None,
    step: Annotated[int | None, typer.Option(help="Only of this training step.")] = None,
    seed: Annotated[int | None, typer.Option(help="Only of this seed.")] = None,
    won: Annotated[
        bool | None, typer.Option("--won/--lost", help="Only those that were won, or were not.")
    ] = None,
    least: Annotated[float | None, typer.Option(help="Only with at least this reward.")] = None,
    beside: Annotated[
        str | None,
        typer.Option("--with", help="Another run, to compare plays with on the pages."),
    ] = None,
    last: Annotated[int, typer.Option(help="At most so many, the latest; 0 for all.", min=0)] = 50,
    port: Annotated[
        int, typer.Option(help="Of the pages; 0 takes a free one.", min=0, max=65535)
    ] = 8200,
    host: Annotated[str, typer.Option(help="The address to serve the pages at.")] = "127.0.0.1",
) -> None:
    """See what was played: in the browser, also while a job runs.

    With --list as a table, with --export FILE as one file for others. --split, --label, --outcome,
    --step, --seed, --won, --lost, --least and --last go with --list.
    """
    from agentrl import replay as recorded
    from agentrl.replay.episode_filters import Filter, unknown_label

    wanted = Filter(
        split=split, label=label, outcome=outcome, step=step, seed=seed, won=won, least=least,
        id=episode, group=group,
    )  # fmt: skip
    opened = recorded.open(run)
    if export is not None:
        _export(opened, export, episode, group, report)
        typer.echo(f"wrote {export}")
        return
    if not list_:
        if report or replace(wanted, id=None, group=None) != Filter():
            raise ConfigError(
                "--report goes with --export; --split, --label, --outcome, --step, --seed, --won, "
                "--lost and --least with --list. The pages have filters of their own"
            )
        _serve(run, host, port, _page(opened, wanted), beside)
        return
    recordings = opened.episodes()
    found = wanted.of(recordings)
    if recordings and not found:
        typer.echo(f"No episode is like this. Recorded are: {_counts(recordings)}")
        if (unknown := unknown_label(label, recordings)) is not None:
            typer.echo(printable(unknown))
        return
    whatever_came = replace(wanted, outcome=None).of(recordings)
    _print_table(found[-last:] if last else found, len(found))
    if any(s.outcome.void for s in found):
        typer.echo(printable(_void_causes(whatever_came)))


def _export(run: "Run", path: Path, episode: str | None, group: str | None, report: bool) -> None:
    from agentrl.viewer import export

    if (episode is not None) + (group is not None) + report != 1:
        raise ConfigError("--export needs one of --episode ID, --group ID and --report")
    if episode is not None:
        export.write(run, episode, path)
    elif group is not None:
        export.write_group(run, group, path)
    else:
        export.write_report(run, path)


def _page(run: "Run", wanted: "Filter") -> str:
    """What the address of the page of an episode or a group ends with."""
    folder, name = ("episodes", wanted.id) if wanted.group is None else ("groups", wanted.group)
    if name is None:
        return ""
    if wanted.id is not None and wanted.group is not None:
        raise ConfigError("--episode or --group, not both: each has a page of its own")
    if not run.episodes(wanted):
        raise ConfigError(f"{run.path} has no {name!r} (agentrl replay RUN --list)")
    return f"{folder}/{quote(name)}"


def _serve(run: str, host: str, port: int, page: str, other: str | None) -> None:
    try:
        from agentrl.viewer.viewer_server import serve
    except ImportError as error:
        raise ConfigError(
            f"the pages need {error.name}, not installed: pip install 'agentrl[page]'; --list and "
            "--export work without"
        ) from None

    def ready(url: str) -> None:
        typer.echo(f"{url}  (Ctrl-C ends it)")

    serve(run, host=host, port=port, page=page, other=other, ready=ready)


def _counts(episodes: Sequence["Summary"]) -> str:
    counts = Counter(f"{s.split} {s.outcome.value}" for s in episodes)
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


def _void_causes(episodes: Sequence["Summary"]) -> str:
    """Such as `3 void of 60 (5.0%): 2 x call, 1 x DeviceOffline`."""
    from agentrl.replay.episode_filters import void_causes

    counts = void_causes(episodes)
    causes = ", ".join(f"{count} x {one_line(cause)}" for cause, count in counts.most_common())
    share = counts.total() / len(episodes)
    return f"{counts.total()} void of {len(episodes)} ({share:.1%}): {causes}"


def _plain(words: str) -> str:
    return escape(printable(words))


def _print_table(episodes: Sequence["Summary"], total: int) -> None:
    table = Table(
        "episode",
        "split",
        "label",
        "step",
        "seed",
        "outcome",
        "won",
        "turns",
        "reward",
        "device",
        "error",
    )
    for s in episodes:
        table.add_row(
            _plain(s.id), _plain(s.split), _plain(s.label), str(s.step), str(s.seed),
            s.outcome.value, {True: "yes", False: "no", None: ""}[s.won], str(s.turns),
            "" if s.outcome.void else f"{s.total:g}", _plain(s.device or ""),
            _plain(one_line(s.error or "")) or ("(removed by retention)" if s.removed else ""),
        )  # fmt: skip
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)
    console.print(f"{len(episodes)} of {total} episodes")
