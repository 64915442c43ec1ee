"""`agentrl rescore` and `agentrl rehearse`: score or play recorded episodes again."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from agentrl.cli.recordings.episodes import LabelOption, RunArgument, SplitOption, StepOption
from agentrl.cli.terminal_output import print_table, suggest
from agentrl.errors import ConfigError
from agentrl.text.formatting import pluralize, printable

if TYPE_CHECKING:
    from agentrl.config import RewardConfig
    from agentrl.replay import Filter, RecordedEpisode, Run, Summary

_SHOWN = 10
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one line per episode.")]


def rescore(
    run: RunArgument,
    reward: Annotated[
        list[str],
        typer.Option(help="Reward: FILE.py, FILE.py:function or module:function; repeatable."),
    ],
    weight: Annotated[
        list[float] | None, typer.Option(help="Weight of each --reward, in order; default: 1.")
    ] = None,
    split: SplitOption = None,
    label: LabelOption = None,
    step: StepOption = None,
    last: Annotated[int, typer.Option(help="Only the latest N; 0 means all.", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Score recorded episodes with other rewards and compare, without changing the run.

    Example: agentrl rescore runs/NAME --reward rewards/new.py
    """
    from agentrl import replay
    from agentrl.replay import Filter
    from agentrl.rollout import rescoring

    recorded = recorded_episodes(run, Filter(split=split, label=label, step=step), last)
    rewards = reward_configs(reward, weight or [])
    form = rescoring.chat_format_of(Path(run))
    rescored = rescoring.rescore(recorded, rewards, form, replay.open(run).with_images)
    if as_json:
        for episode in rescored:
            fields = asdict(episode)
            # Episodes recorded by other programs may contain NaN, which JSON cannot express.
            if not math.isfinite(episode.was):
                fields["was"] = None
            typer.echo(json.dumps(fields))
        return
    result = rescoring.compare_scores(rescored)
    typer.echo(
        f"{pluralize(result.episodes, 'episode')}: mean {result.was:.4g} -> {result.now:.4g}, "
        f"difference {result.now - result.was:+.4g} "
        f"(95% interval {result.low:+.4g} to {result.high:+.4g})"
    )
    if result.correlation is not None:
        typer.echo(f"rank correlation {result.correlation:.3f}")
    if result.swapped is not None:
        typer.echo(f"{result.swapped:.1%} of the pairs with different rewards change order")
    table = Table("episode", "was", "now", "difference", title="Largest differences")
    for episode in sorted(rescored, key=lambda e: -abs(e.difference))[:_SHOWN]:
        table.add_row(
            escape(printable(episode.id)),
            f"{episode.was:.4g}",
            f"{episode.now:.4g}",
            f"{episode.difference:+.4g}",
        )
    print_table(table)
    named = ", ".join(f"{{function: '{r.function}', weight: {r.weight:g}}}" for r in rewards)
    suggest(("train", Path(run) / "config.yaml", f"rewards=[{named}]"))


def rehearse(
    run: RunArgument,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Overrides of the run's settings.", metavar="KEY=VALUE"),
    ] = None,
    split: SplitOption = None,
    label: LabelOption = None,
    step: StepOption = None,
    episode: Annotated[str | None, typer.Option(help="Only this episode, by its id.")] = None,
    last: Annotated[int, typer.Option(help="Only the latest N; 0 means all.", min=0)] = 20,
    as_json: JsonOption = False,
) -> None:
    """Play recorded replies again, and report where frames, states or rewards differ.

    Exits with 1 if an episode differs.

    Example: agentrl rehearse runs/NAME devices.source=virtual:4
    """
    from agentrl import config as configuration
    from agentrl import event_loop
    from agentrl.replay import Filter
    from agentrl.rollout.rehearsal import rehearse as play_again
    from agentrl.rollout.rollout_plan import plan_rollouts
    from agentrl.runs.run_folder import RunFolder

    RunFolder.existing(Path(run))
    settings = configuration.load(Path(run) / "config.yaml", overrides or [])
    # Read all episodes before starting a phone.
    recorded = list(
        recorded_episodes(run, Filter(split=split, label=label, step=step, id=episode), last)
    )
    rehearsals = event_loop.run(play_again(plan_rollouts(settings), recorded))
    if as_json:
        for rehearsal in rehearsals:
            typer.echo(json.dumps(asdict(rehearsal)))
    else:
        for rehearsal in rehearsals:
            if not rehearsal.same:
                where = "at the start" if rehearsal.turn == 0 else f"in turn {rehearsal.turn}"
                change = f"{rehearsal.what} was {rehearsal.was}, is now {rehearsal.now}"
                typer.echo(printable(f"{rehearsal.id} differs {where}: {change}"))
        same = sum(rehearsal.same for rehearsal in rehearsals)
        typer.echo(f"{same} of {len(rehearsals)} episodes were reproduced")
    if not all(rehearsal.same for rehearsal in rehearsals):
        raise typer.Exit(1)
    if not as_json:
        suggest(("rescore", run, "--reward", "FILE.py"), ("view", run))


def reward_configs(functions: list[str], weights: list[float]) -> "list[RewardConfig]":
    """Return the rewards that the options name; of a plain file, its `compute_score`."""
    from agentrl.config import RewardConfig

    if len(weights) > len(functions):
        raise ConfigError(
            f"--weight is given {len(weights)} times, but --reward only {len(functions)} times"
        )
    every = [*weights, *[1.0] * (len(functions) - len(weights))]
    named = [f"{name}:compute_score" if name.endswith(".py") else name for name in functions]
    return [
        RewardConfig(function=name, weight=weight)
        for name, weight in zip(named, every, strict=True)
    ]


def matching_episodes(run: "Run", where: "Filter", last: int) -> "list[Summary]":
    """Return the latest valid episodes that match; all if `last` is 0.

    Raises:
        ConfigError: no valid episode matches.
    """
    from agentrl.runs.episode_summary import check_label

    check_label(where.label, run.episodes())
    found = [summary for summary in run.episodes(where) if not summary.outcome.void]
    if not found:
        raise ConfigError(
            f"{run.path}: no valid episodes match; list all with agentrl episodes RUN"
        )
    return found[-last or None :]


def recorded_episodes(run: str, where: "Filter", last: int) -> "Iterator[RecordedEpisode]":
    """Read the matching episodes lazily, so that the command's other checks come first."""
    from agentrl import replay

    opened = replay.open(run)
    latest = matching_episodes(opened, where, last)
    # The index may list episodes whose files were pruned or are damaged.
    is_empty = True
    for recorded in opened.opened(latest):
        is_empty = False
        yield recorded
    if is_empty:
        pruned = {summary.id for summary in opened.episodes(where) if summary.removed}
        if all(summary.id in pruned for summary in latest):
            raise ConfigError(f"{run}: all matching episodes were pruned")
        rest = " or were pruned" if pruned else ""
        raise ConfigError(f"{run}: all matching episodes are damaged{rest}")
