"""`agentrl episodes`: list recorded episodes in the terminal."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from agentrl.cli.command_completion import complete_run
from agentrl.cli.terminal_output import print_table, suggest
from agentrl.text.formatting import one_line, printable

if TYPE_CHECKING:
    from agentrl.replay import Summary

RunArgument = Annotated[str, typer.Argument(help="A run folder.", autocompletion=complete_run)]
SplitOption = Annotated[
    str | None, typer.Option(help="Only episodes of this split: `train`, `eval` or `demo`.")
]
LabelOption = Annotated[
    str | None,
    typer.Option(help="Only episodes with this label, such as `after-sampled` or `human`."),
]
StepOption = Annotated[int | None, typer.Option(help="Only episodes of this training step.")]
SuccessOption = Annotated[
    bool | None,
    typer.Option("--success/--no-success", help="Only successful or only unsuccessful episodes."),
]
MinRewardOption = Annotated[
    float | None, typer.Option(help="Only episodes with at least this reward.")
]


def episodes(
    run: RunArgument,
    split: SplitOption = None,
    label: LabelOption = None,
    outcome: Annotated[
        str | None, typer.Option(help="Only this outcome; `void` means every failure.")
    ] = None,
    step: StepOption = None,
    seed: Annotated[int | None, typer.Option(help="Only this seed.")] = None,
    group: Annotated[str | None, typer.Option(help="Only this group, by its id.")] = None,
    success: SuccessOption = None,
    min_reward: MinRewardOption = None,
    query: Annotated[
        str | None,
        typer.Option("--where", help="Only matches of a query: `accuracy < 0.5 and turns > 9`."),
    ] = None,
    last: Annotated[int, typer.Option(help="Only the latest N; 0 means all.", min=0)] = 50,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each episode.")
    ] = False,
) -> None:
    """List recorded episodes as a table.

    Example: agentrl episodes runs/NAME --split eval --no-success
    """
    from agentrl import replay
    from agentrl.replay.episode_query import parse_query
    from agentrl.replay.tables_export import episode_row
    from agentrl.runs.episode_summary import Filter, unknown_label

    recorded = replay.open(run).episodes()
    where = Filter(
        split=split, label=label, outcome=outcome, step=step, seed=seed, group=group,
        success=success, min_reward=min_reward,
        query=None if query is None else parse_query(query, recorded),
    )  # fmt: skip
    matching = where.of(recorded)
    # With --json, standard output is reserved for the rows.
    if recorded and not matching:
        counts = Counter(f"{s.split} {s.outcome.value}" for s in recorded)
        listed = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        typer.echo(f"No episodes match. The run has {listed}", err=as_json)
        if (unknown := unknown_label(label, recorded)) is not None:
            typer.echo(printable(unknown), err=as_json)
        return
    shown = matching[-last:] if last else matching
    if as_json:
        for summary in shown:
            typer.echo(json.dumps(episode_row(summary)))
        return
    _print_table(shown, len(matching))
    # Compute the void fraction over episodes of every outcome, even if only some are listed.
    if any(s.outcome.void for s in matching):
        typer.echo(printable(_void_causes(replace(where, outcome=None).of(recorded))))
    if matching:
        suggest(("view", run, "--episode", matching[-1].id), ("view", run))


def _void_causes(episodes: Sequence["Summary"]) -> str:
    """Describe void episodes, such as `3 void of 60 (5.0%): 2 x call, 1 x DeviceOffline`."""
    from agentrl.runs.episode_summary import void_causes

    counts = void_causes(episodes)
    causes = ", ".join(f"{count} x {one_line(cause)}" for cause, count in counts.most_common())
    fraction = counts.total() / len(episodes)
    return f"{counts.total()} void of {len(episodes)} ({fraction:.1%}): {causes}"


def _cell(text: str) -> str:
    return escape(printable(text))


def _print_table(episodes: Sequence["Summary"], total: int) -> None:
    has_devices = any(s.device for s in episodes)
    table = Table(
        "episode", "split", "label", "step", "seed", "outcome", "success", "turns", "reward",
        *(["device"] if has_devices else []), "error",
    )  # fmt: skip
    for s in episodes:
        table.add_row(
            _cell(s.id), _cell(s.split), _cell(s.label), str(s.step), str(s.seed),
            s.outcome.value, {True: "yes", False: "no", None: ""}[s.success], str(s.turns),
            "" if s.outcome.void else f"{s.reward:g}",
            *([_cell(s.device or "")] if has_devices else []),
            _cell(one_line(s.error or "")) or ("(pruned)" if s.removed else ""),
        )  # fmt: skip
    print_table(table)
    typer.echo(f"{len(episodes)} of {total} episodes")
