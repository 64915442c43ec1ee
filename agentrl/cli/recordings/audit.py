"""`agentrl audit`: measure how often a reward accepts failures or rejects successes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from agentrl.cli.recordings.episodes import LabelOption, RunArgument, SplitOption, StepOption
from agentrl.cli.recordings.rescore_and_rehearse import (
    matching_episodes,
    recorded_episodes,
    reward_configs,
)
from agentrl.cli.terminal_output import output_console, print_table, suggest
from agentrl.errors import ConfigError
from agentrl.text.formatting import one_line, pluralize, printable

if TYPE_CHECKING:
    from agentrl.confidence_intervals import Share
    from agentrl.replay import Filter
    from agentrl.rollout.reward_audit import AuditReport, Comparison

_JudgeOption = Annotated[
    str,
    typer.Option(
        help="What to audit: JUDGE.yaml with a reward function and its kwargs; a function, as in "
        "agentrl rescore; a recorded `reward` or `reward/NAME`; or `sight`, what was read off "
        "screens."
    ),
]
_NameOption = Annotated[
    str | None,
    typer.Option(
        help="Name of the report in RUN/audits, where it replaces any report of that name; "
        "default: the judge's name, numbered if taken."
    ),
]
_SHOWN = 10
_LONGEST_NAME = 100


def audit(
    run: RunArgument,
    judge: _JudgeOption,
    truth: Annotated[
        str,
        typer.Option(
            help="Ground truth: `success`, another metric of the environment, `env_reward`, or "
            "`reward/NAME`."
        ),
    ] = "success",
    truth_at: Annotated[
        float, typer.Option(help="Lowest value of the ground truth that counts as a success.")
    ] = 1.0,
    accept_at: Annotated[
        float | None,
        typer.Option(
            help="Lowest reward that counts as accepted; default: the middle of the judge's range "
            "of scores, otherwise 0.5."
        ),
    ] = None,
    split: SplitOption = None,
    label: LabelOption = None,
    step: StepOption = None,
    last: Annotated[int, typer.Option(help="Only the latest N; 0 means all.", min=0)] = 0,
    concurrency: Annotated[
        int, typer.Option(help="Number of episodes to score at the same time.", min=1)
    ] = 8,
    deadline_s: Annotated[
        float, typer.Option(help="Time limit for scoring one episode, in seconds.", min=0.001)
    ] = 60.0,
    name: _NameOption = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write the report, with screenshots, to FILE.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Compare a judge, a reward, or readings of screens with the ground truth of recorded episodes.

    Example: agentrl audit runs/NAME --judge judge.yaml
    """
    from agentrl import replay

    where = replay.Filter(split=split, label=label, step=step)
    saved_as = _file_name(name, judge, Path(run))
    report = _report(run, judge, truth, truth_at, accept_at, where, last, concurrency, deadline_s)
    opened = replay.open(run)
    written = [report.save(opened.path, saved_as)]
    if html is not None:
        from agentrl.viewer import export as pages

        pages.write_audit(opened, report.to_dict(), html)
        written.append(html)
    if as_json:
        typer.echo(json.dumps(report.to_dict()))
        return
    _print(report)
    for file in written:
        typer.echo(f"wrote {file}")
    suggest(("view", run))


def _candidate(judge: str) -> str:
    """Return the name of the audited reward or judge."""
    return Path(judge).stem if judge.endswith((".yaml", ".yml")) else judge


def _file_name(name: str | None, judge: str, run: Path) -> str:
    """Return the report's file name without suffix, from the end of a long path.

    The default name gets a number if that report already exists.

    Raises:
        ConfigError: the name has no letter or digit.
    """
    from agentrl.runs.episode_summary import label_of
    from agentrl.runs.run_paths import audit_file

    stem = label_of(name or _candidate(judge))[-_LONGEST_NAME:].strip("-")
    if not stem:
        raise ConfigError(f"--name {name}: must contain a letter or digit")
    if name is not None:
        return stem
    names = (stem, *(f"{stem}-{number}" for number in range(2, 10_000)))
    return next(one for one in names if not audit_file(run, one).exists())


def _report(
    run: str,
    judge: str,
    truth: str,
    truth_at: float,
    accept_at: float | None,
    where: "Filter",
    last: int,
    concurrency: int,
    deadline_s: float,
) -> "AuditReport":
    from agentrl import config as configuration
    from agentrl import event_loop, replay
    from agentrl.rollout import reward_audit, screen_reading_audit
    from agentrl.rollout.rescoring import chat_format_of
    from agentrl.rollout.rewards.scoring import RewardFunctions

    def comparison(default: float) -> "Comparison":
        return reward_audit.Comparison(
            accept_at=default if accept_at is None else accept_at, truth=truth, truth_at=truth_at
        )

    opened = replay.open(run)
    # Readings of screens are compared with the true state, without any reward.
    if judge == screen_reading_audit.SIGHT:
        return screen_reading_audit.audit_sight(opened, recorded_episodes(run, where, last))
    # `reward/FILE.py` is a function in a file, not a recorded reward.
    if judge.partition("/")[0] == reward_audit.REWARD and not judge.endswith(".py"):
        summaries = matching_episodes(opened, where, last)
        return reward_audit.audit_recorded(opened, summaries, judge, comparison(0.5))
    if judge.endswith((".yaml", ".yml")):
        rewards = configuration.load_rewards(Path(judge))
    else:
        rewards = reward_configs([judge], [])
    form = chat_format_of(Path(run))
    with RewardFunctions(rewards, deadline_s, form, setting="--deadline-s") as scorer:
        return event_loop.run(
            reward_audit.audit_rewards(
                opened,
                recorded_episodes(run, where, last),
                _candidate(judge),
                scorer,
                comparison(scorer.accept_at),
                concurrency=concurrency,
            )
        )


def _print(report: "AuditReport") -> None:
    console = output_console()
    candidate = escape(printable(report.candidate))
    counted = pluralize(report.episodes, "episode")
    console.print(f"{counted}: {candidate} against {escape(report.truth)}", soft_wrap=True)
    console.print(f"agreement      {_share(report.agreement)}")
    if report.facts:
        from agentrl.devices.vision.vision_audit import format_audit

        console.print(escape(format_audit(report.facts)))
    else:
        accepted, true = f"score >= {report.accept_at:g}", f"{report.truth} >= {report.truth_at:g}"
        console.print(f"accepted if    {accepted}; true if {escape(true)}", soft_wrap=True)
        console.print(f"false accepts  {_share(report.false_accepts, 'failed')}", soft_wrap=True)
        console.print(f"false rejects  {_share(report.false_rejects, 'succeeded')}", soft_wrap=True)
    for count, why in ((report.failed, "not scored"), (report.unknown, "without ground truth")):
        if count:
            console.print(f"not counted: {pluralize(count, 'episode')} {why}")
    for failure in report.failures[:1]:
        why = escape(printable(one_line(failure["why"])))
        console.print(f"  such as {escape(printable(failure['id']))}: {why}", soft_wrap=True)
    if not report.cases:
        return
    table = Table("episode", "verdict", "score", "truth", title="Worst cases")
    for case in report.cases[:_SHOWN]:
        score, true = f"{case['score']:.4g}", f"{case['truth']:.4g}"
        table.add_row(escape(printable(case["id"])), case["kind"], score, true)
    print_table(table)


def _share(found: "Share", of: str | None = None) -> str:
    """Format a share of the episodes that `failed` or `succeeded`, with its interval."""
    if found.share is None or found.low is None or found.high is None:
        return f"unknown, as no episode {of}" if of else "unknown, as there is no episode"
    interval = f"95% interval {found.low:.1%} to {found.high:.1%}"
    those = f" of those that {of}" if of else ""
    return f"{found.share:.1%} ({found.count} of {found.of}; {interval}){those}"
