"""Compare a reward with the truth: how often it accepts failures and rejects successes."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from agentrl.confidence_intervals import GroupSums, Share
from agentrl.errors import ConfigError, RewardError
from agentrl.files import write_json
from agentrl.replay import RecordedEpisode, Run
from agentrl.rollout.rescoring import check_recorded
from agentrl.rollout.rewards.scoring import RewardFunctions, score_or_void
from agentrl.runs.episode_summary import Summary, is_success
from agentrl.runs.run_paths import audit_file
from agentrl.text.name_suggestions import known_names
from agentrl.types import Episode, ScoredEpisode

REWARD = "reward"
"""Name of the recorded sum of all rewards; `reward/NAME` is a single function's reward."""
MAX_CASES = 50
Facts = Mapping[str, float]
"""Known values of an episode, by name."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Verdict:
    """The reward's verdict on one episode, and the truth."""

    id: str
    group: str
    """Id of the group of siblings with the same seed."""
    score: float
    truth: float
    accepts: bool
    """Whether the reward accepts the episode."""
    succeeded: bool
    """Whether the episode truly succeeded."""
    frame: str | None = None
    """The last recorded screen."""

    @property
    def kind(self) -> Literal["false accept", "false reject"] | None:
        """How the reward is wrong; None if it is right."""
        if self.accepts == self.succeeded:
            return None
        return "false accept" if self.accepts else "false reject"


@dataclass(slots=True, kw_only=True, frozen=True)
class Comparison:
    """How to turn a reward into a verdict, and which fact is the truth."""

    accept_at: float = 0.5
    truth: str = "success"
    truth_at: float = 1.0

    def verdict(
        self, episode_id: str, group: str, score: float, facts: Facts, frame: str | None = None
    ) -> Verdict | None:
        """Return the verdict on one episode, or None if the truth is unknown."""
        if (truth := facts.get(self.truth)) is None:
            return None
        return Verdict(
            id=episode_id,
            group=group,
            score=score,
            truth=truth,
            accepts=score >= self.accept_at,
            succeeded=truth >= self.truth_at,
            frame=frame,
        )


@dataclass(slots=True, kw_only=True, frozen=True)
class AuditReport:
    """How well a reward agrees with the truth."""

    candidate: str
    truth: str
    accept_at: float
    truth_at: float
    episodes: int
    """Number of episodes with a verdict and a known truth."""
    agreement: Share
    false_accepts: Share
    """Accepted episodes among those that truly failed."""
    false_rejects: Share
    """Rejected episodes among those that truly succeeded."""
    failed: int = 0
    """Number of episodes that the candidate could not score."""
    unknown: int = 0
    """Number of episodes without a known truth."""
    cases: Sequence[Mapping[str, Any]] = ()
    """Worst cases: `id`, `kind`, `score`, `truth`, `frame`, and `why` if a judge gave a reason."""
    failures: Sequence[Mapping[str, str]] = ()
    """`id` and `why` of some episodes that could not be scored."""
    facts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Agreement on each fact, only for `screen_reading_audit`; see `VisionAudit.summary`."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary of plain values, including nested values."""
        return asdict(self)

    def save(self, run: Path, name: str) -> Path:
        """Write the report into the run's folder, where the viewer finds it.

        Raises:
            ConfigError: the name is not a valid file name, or the file cannot be written.
        """
        try:
            file = audit_file(run, name)
            file.parent.mkdir(exist_ok=True)
            write_json(file, self.to_dict())
        except (OSError, ValueError) as error:
            raise ConfigError(f"the audit {name!r} cannot be saved: {error}") from error
        return file


@dataclass(slots=True, kw_only=True, frozen=True)
class ErrorSums:
    """Numbers of wrong verdicts over groups of siblings."""

    errors: GroupSums
    """Wrong verdicts among all episodes."""
    accepts: GroupSums
    """False accepts, among episodes that truly failed."""
    rejects: GroupSums
    """False rejects, among episodes that truly succeeded."""


def error_sums(verdicts: Iterable[Verdict]) -> ErrorSums:
    """Count wrong verdicts per group."""
    groups: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        groups[verdict.group].append(verdict)

    def count(counts: Callable[[Verdict], bool]) -> GroupSums:
        chosen = ([v for v in group if counts(v)] for group in groups.values())
        return GroupSums.of_groups(
            (sum(v.kind is not None for v in some), len(some)) for some in chosen
        )

    return ErrorSums(
        errors=count(lambda v: True),
        accepts=count(lambda v: not v.succeeded),
        rejects=count(lambda v: v.succeeded),
    )


def report_on(
    candidate: str, comparison: Comparison, verdicts: Sequence[Verdict], **more: Any
) -> AuditReport:
    """Count verdicts, and report how well the candidate agrees with the truth."""
    wrong = sorted(
        (v for v in verdicts if v.kind), key=lambda v: (-abs(v.score - comparison.accept_at), v.id)
    )
    sums = error_sums(verdicts)
    return AuditReport(
        candidate=candidate,
        truth=comparison.truth,
        accept_at=comparison.accept_at,
        truth_at=comparison.truth_at,
        episodes=len(verdicts),
        agreement=sums.errors.share().complement(),
        false_accepts=sums.accepts.share(),
        false_rejects=sums.rejects.share(),
        cases=[
            {"id": v.id, "kind": v.kind, "score": v.score, "truth": v.truth, "frame": v.frame}
            for v in wrong[:MAX_CASES]
        ],
        **more,
    )


def recorded_facts(summary: Summary) -> dict[str, float]:
    """Return the known values of a recorded episode."""
    return _facts(summary.metrics, summary.components, summary.env_reward, summary.reward)


def played_facts(scored: ScoredEpisode) -> dict[str, float]:
    """Return the known values of an episode that has just been played."""
    turns = scored.episode.turns
    metrics = turns[-1].info.get("metrics", {}) if turns else {}
    env_reward = sum(turn.env_reward for turn in turns)
    return _facts(metrics, scored.components, env_reward, scored.reward)


def _facts(
    metrics: Mapping[str, float],
    components: Mapping[str, Sequence[float]],
    env_reward: float,
    total: float,
) -> dict[str, float]:
    facts = {f"{REWARD}/{name}": float(sum(values)) for name, values in components.items()}
    facts |= {"env_reward": float(env_reward), REWARD: float(total), **metrics}
    if (success := is_success(metrics)) is not None:
        facts["success"] = float(success)
    return facts


def check_known(name: str, what: str, facts: Iterable[Facts]) -> None:
    """Check that at least one episode has a fact.

    Raises:
        ConfigError: the fact is unknown in every episode.
    """
    known = dict.fromkeys(key for one in facts for key in one)
    if known and name not in known:
        raise ConfigError(
            f"{what}={name}: no episode has it{known_names(name, known, label='There are')}"
        )


def last_frame(episode: Episode) -> str | None:
    """Return the last recorded screen of an episode."""
    turns = (frame for turn in reversed(episode.turns) for frame in reversed(turn.frames))
    return next(iter((*reversed(episode.final_frames), *turns)), None)


def audit_recorded(
    run: Run, summaries: Sequence[Summary], candidate: str, comparison: Comparison
) -> AuditReport:
    """Audit a recorded reward.

    Raises:
        ConfigError: no episode has the reward, or the truth.
    """
    facts = {summary.id: recorded_facts(summary) for summary in summaries}
    check_known(candidate, "--judge", facts.values())
    scores = {id: known[candidate] for id, known in facts.items() if candidate in known}
    groups = {summary.id: summary.group for summary in summaries}
    return _report(run, candidate, comparison, scores, facts, groups, {})


async def audit_rewards(
    run: Run,
    recorded: Iterable[RecordedEpisode],
    candidate: str,
    scorer: RewardFunctions,
    comparison: Comparison,
    *,
    concurrency: int,
) -> AuditReport:
    """Score recorded episodes with reward functions, and compare the scores with the truth.

    Raises:
        ConfigError: no episode has the truth, or a function needs a value that was not recorded.
        RewardError: no episode could be scored.
    """
    scores: dict[str, float] = {}
    failed: dict[str, tuple[Episode, RewardError]] = {}
    facts: dict[str, Facts] = {}
    groups: dict[str, str] = {}
    source = iter(recorded)

    async def score_next() -> None:
        # All tasks share the iterator: each takes the next episode when it is free.
        for before in source:
            facts[before.summary.id] = recorded_facts(before.summary)
            groups[before.summary.id] = before.summary.group
            whole = run.with_images(before) if scorer.reads_images else before
            scored, failure = await score_or_void(scorer.score_async, whole.episode)
            if failure is None:
                scores[before.summary.id] = scored.reward
            else:
                failed[before.summary.id] = before.episode, failure

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(score_next())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    if failed and not scores:
        (id, (episode, error)), *_ = failed.items()
        check_recorded(error, episode, [episode for episode, _ in failed.values()])
        raise RewardError(f"no episode could be scored; {id}: {error}") from error
    why = {id: str(error) for id, (_, error) in failed.items()}
    report = _report(run, candidate, comparison, scores, facts, groups, why)
    cases = [{**case, "why": scorer.explain(case["id"])} for case in report.cases]
    return replace(report, cases=cases)


def _report(
    run: Run,
    candidate: str,
    comparison: Comparison,
    scores: Mapping[str, float],
    facts: Mapping[str, Facts],
    groups: Mapping[str, str],
    failures: Mapping[str, str],
) -> AuditReport:
    check_known(comparison.truth, "--truth", facts.values())
    found = [comparison.verdict(id, groups[id], score, facts[id]) for id, score in scores.items()]
    verdicts = [verdict for verdict in found if verdict is not None]
    report = report_on(
        candidate,
        comparison,
        verdicts,
        failed=len(failures),
        unknown=len(found) - len(verdicts),
        failures=[{"id": id, "why": why[:500]} for id, why in failures.items()][:MAX_CASES],
    )
    return replace(report, cases=with_last_frames(run, report.cases))


def with_last_frames(run: Run, cases: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Add to each case the last recorded screen of its episode."""
    found: list[Mapping[str, Any]] = []
    for case in cases:
        frame = None
        # The episode may have been removed or damaged.
        with suppress(ConfigError):
            frame = last_frame(run.episode(case["id"]).episode)
        found.append({**case, "frame": frame})
    return found
