"""`agentrl rescore` and `agentrl rehearse`."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentrl.errors import ConfigError
from agentrl.text import counted, printable

if TYPE_CHECKING:
    from agentrl.config import RewardConfig
    from agentrl.replay import Filter, RecordedEpisode

_SHOWN = 10
RunArgument = Annotated[str, typer.Argument(help="A run's folder.")]
SplitOption = Annotated[str | None, typer.Option(help="Only `train`, `eval` or `demo`.")]
LabelOption = Annotated[
    str | None, typer.Option(help="Only of this play, such as `after-sampled` or `human`.")
]
StepOption = Annotated[int | None, typer.Option(help="Only of this training step.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one line an episode.")]


def rescore(
    run: RunArgument,
    reward: Annotated[
        list[str], typer.Option(help="FILE.py, FILE.py:function or module:function; repeatable.")
    ],
    weight: Annotated[
        list[float] | None, typer.Option(help="Of each --reward, in order; 1 if not said.")
    ] = None,
    split: SplitOption = None,
    label: LabelOption = None,
    step: StepOption = None,
    last: Annotated[int, typer.Option(help="At most so many, the latest; 0 for all.", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Score recorded episodes by another reward, and show the difference. Nothing is played."""
    from agentrl.replay import Filter
    from agentrl.rollout.rescoring import compare_scores
    from agentrl.rollout.rescoring import rescore as score_anew

    rewards = _rewards(reward, weight or [])
    rescored = score_anew(
        _recorded(run, Filter(split=split, label=label, step=step), last), rewards
    )
    if as_json:
        for one in rescored:
            told = asdict(one)
            told["was"] = one.was if math.isfinite(one.was) else None  # somebody else's record
            typer.echo(json.dumps(told))
        return
    found, console = compare_scores(rescored), Console()
    console.print(
        f"{counted(found.episodes, 'episode')}: mean {found.was:.4g} -> {found.now:.4g}, "
        f"difference {found.now - found.was:+.4g} (95% {found.low:+.4g} to {found.high:+.4g})",
        highlight=False,
    )
    if found.correlation is not None:
        console.print(f"rank correlation {found.correlation:.3f}", highlight=False)
    if found.swapped is not None:
        console.print(
            f"{found.swapped:.1%} of the siblings that differed change places", highlight=False
        )
    table = Table("episode", "was", "now", "difference", title="The largest differences")
    for one in sorted(rescored, key=lambda o: -abs(o.difference))[:_SHOWN]:
        table.add_row(
            escape(printable(one.id)), f"{one.was:.4g}", f"{one.now:.4g}", f"{one.difference:+.4g}"
        )
    console.print(table)


def rehearse(
    run: RunArgument,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings over the run's own.", metavar="KEY=VALUE")
    ] = None,
    split: SplitOption = None,
    label: LabelOption = None,
    step: StepOption = None,
    episode: Annotated[str | None, typer.Option(help="Only this one, by its id.")] = None,
    last: Annotated[int, typer.Option(help="At most so many, the latest; 0 for all.", min=0)] = 20,
    as_json: JsonOption = False,
) -> None:
    """Play recorded replies again and report where frames, states or rewards part.

    Exits with 1 if one came out otherwise.
    """
    from agentrl import config as configuration
    from agentrl.replay import Filter
    from agentrl.replay.run_layout import has_single_frames
    from agentrl.rollout.rehearsal import rehearse as play_again

    settings = configuration.load(Path(run) / "config.yaml", overrides or [])
    if has_single_frames(Path(run)):
        raise ConfigError(
            f"{run}: an older agentrl has recorded its frames, and named them otherwise: what it "
            "shows now cannot be compared; record such episodes anew (agentrl eval)"
        )
    recorded = list(_recorded(run, Filter(split=split, label=label, step=step, id=episode), last))
    found = play_again(settings, recorded)
    if as_json:
        for one in found:
            typer.echo(json.dumps(asdict(one)))
    else:
        for one in found:
            if not one.same:
                where = "at the beginning" if one.turn == 0 else f"in turn {one.turn}"
                typer.echo(
                    printable(f"{one.id} parts {where}: {one.what} was {one.was}, is {one.now}")
                )
        same = sum(one.same for one in found)
        typer.echo(f"{same} of {len(found)} episodes came out as they were recorded")
    if not all(one.same for one in found):
        raise typer.Exit(1)


def _rewards(functions: list[str], weights: list[float]) -> "list[RewardConfig]":
    from agentrl.config import RewardConfig

    if len(weights) > len(functions):
        raise ConfigError(f"--weight is given {len(weights)} times, --reward {len(functions)}")
    every = [*weights, *[1.0] * (len(functions) - len(weights))]
    named = [f"{name}:compute_score" if name.endswith(".py") else name for name in functions]
    return [
        RewardConfig(function=name, weight=weight)
        for name, weight in zip(named, every, strict=True)
    ]


def _recorded(run: str, wanted: "Filter", last: int) -> "Iterator[RecordedEpisode]":
    """Read as they are asked for: what else is wrong is told before."""
    from agentrl import replay
    from agentrl.replay.episode_filters import check_label

    opened = replay.open(run)
    check_label(wanted.label, opened.episodes())
    found = [summary for summary in opened.episodes(wanted) if not summary.outcome.void]
    if not found:
        raise ConfigError(f"{run}: no episode that is not void is like this")
    some = found[-last or None :]
    gone = True
    for recorded in opened.opened(some):
        gone = False
        yield recorded
    if gone:
        removed = {summary.id for summary in opened.episodes(wanted) if summary.removed}
        if all(summary.id in removed for summary in some):
            raise ConfigError(f"{run}: retention has removed every episode that is like this")
        rest = ", or was removed by retention" if removed else ""
        raise ConfigError(
            f"{run}: no episode that is like this can be read: each is damaged or lost{rest}"
        )
