"""Compares the reward with the truth during training, and stops a job that exceeds a bound."""

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from agentrl.confidence_intervals import GroupSums, Share
from agentrl.config import RewardAuditConfig
from agentrl.errors import UnreliableReward
from agentrl.rollout.reward_audit import (
    MAX_CASES,
    AuditReport,
    Comparison,
    Verdict,
    check_known,
    error_sums,
    last_frame,
    played_facts,
    report_on,
)
from agentrl.types import ScoredEpisode

NAME = "training"
"""Name of the report in `RUN/audits`."""
Counts = list[int]
"""A step's number, followed by the numbers of the three `GroupSums` in `ErrorSums`."""
_SUMS = len(GroupSums._fields)


class RunningAudit:
    """Audits a job's training episodes, over a window of the latest episodes.

    Args:
        counts: counts of earlier steps; changed in place, so that the run's state keeps them.
    """

    def __init__(self, settings: RewardAuditConfig, counts: list[Counts], run: Path) -> None:
        self._settings, self._counts, self._run = settings, counts, run
        self._comparison = Comparison(
            accept_at=settings.accept_at, truth=settings.truth, truth_at=settings.truth_at
        )
        self._wrong: deque[Verdict] = deque(maxlen=MAX_CASES)
        """Latest wrong verdicts in this process."""

    def verdicts(self, played: Sequence[Sequence[ScoredEpisode]]) -> list[Verdict]:
        """Return the verdicts about the episodes of some groups.

        Raises:
            ConfigError: no episode has the configured reward or truth.
        """
        settings, found = self._settings, list[Verdict]()
        valid = [one for group in played for one in group if not one.episode.outcome.void]
        facts = [played_facts(one) for one in valid]
        check_known(settings.reward, "reward_audit.reward", facts)
        check_known(settings.truth, "reward_audit.truth", facts)
        for one, known in zip(valid, facts, strict=True):
            if settings.reward in known:
                frame = last_frame(one.episode)
                score = known[settings.reward]
                verdict = self._comparison.verdict(
                    one.episode.id, one.episode.group, score, known, frame
                )
                found += [] if verdict is None else [verdict]
        return found

    def add_step(self, step: int, verdicts: Sequence[Verdict]) -> dict[str, float]:
        """Count a step's verdicts; a repeated step replaces its earlier counts.

        Returns:
            Metrics: the shares over the window, with 95% intervals.
        """
        wrong = [verdict for verdict in verdicts if verdict.kind]
        sums = error_sums(verdicts)
        counts = [step, *sums.errors, *sums.accepts, *sums.rejects]
        kept = [*(one for one in self._counts if one[0] < step), counts]
        # Drop whole steps, but keep at least `window` episodes.
        while len(kept) > 1 and sum(_sums(one, 0).of for one in kept[1:]) >= self._settings.window:
            del kept[0]
        self._counts[:] = kept
        self._wrong.extend(wrong)
        agreement, accepted, rejected = self._shares()
        metrics = {"episodes": float(agreement.of)}
        shares = {"agreement": agreement, "false_accept": accepted, "false_reject": rejected}
        for name, found in shares.items():
            if found.share is not None and found.low is not None and found.high is not None:
                metrics |= {name: found.share, f"{name}_low": found.low, f"{name}_high": found.high}
        return metrics

    def _shares(self) -> tuple[Share, Share, Share]:
        """Return agreement, false accepts and false rejects over the window."""
        errors, accepts, rejects = (
            GroupSums.total(_sums(one, part) for one in self._counts) for part in range(3)
        )
        return errors.share().complement(), accepts.share(), rejects.share()

    def broken(self) -> str | None:
        """Return the reason why the job must stop; None if no bound is clearly exceeded."""
        settings = self._settings
        _, accepted, rejected = self._shares()
        reward, truth = settings.reward, settings.truth
        for found, key, what in (
            (accepted, "max_false_accept", f"{truth} rates as failures are accepted by {reward}"),
            (rejected, "max_false_reject", f"{truth} rates as successes are rejected by {reward}"),
        ):
            bound = getattr(settings, key)
            if bound is None or found.low is None or found.of < settings.min_episodes:
                continue
            # Require the whole interval to exceed the bound, so that a few unlucky episodes do not
            # stop a job.
            if found.low > bound:
                return (
                    f"{found.count} of {found.of} episodes that {what} ({found.share:.1%}, 95% "
                    f"interval {found.low:.1%} to {found.high:.1%}, all above reward_audit.{key}="
                    f"{bound:g})"
                )
        return None

    def stop(self, step: int, why: str) -> UnreliableReward:
        """End the audit: save the cases and reset the counts, so that a resumed job starts over.

        Returns:
            The error to raise.
        """
        self.save()
        self._counts.clear()
        return UnreliableReward(
            f"stopped before training on step {step} because the reward is wrong too often: {why}. "
            f"Look at the cases (agentrl view {self._run}), correct the reward, and resume the "
            "run, which starts a new audit"
        )

    def save(self) -> None:
        """Write the report with the latest cases, unless nothing was counted."""
        if not self._counts:
            return
        agreement, accepted, rejected = self._shares()
        latest = report_on(self._settings.reward, self._comparison, self._wrong)
        report = AuditReport(
            candidate=self._settings.reward,
            truth=self._settings.truth,
            accept_at=self._settings.accept_at,
            truth_at=self._settings.truth_at,
            episodes=agreement.of,
            agreement=agreement,
            false_accepts=accepted,
            false_rejects=rejected,
            cases=latest.cases,
        )
        report.save(self._run, NAME)


def _sums(counts: Counts, part: int) -> GroupSums:
    start = 1 + part * _SUMS
    return GroupSums(*counts[start : start + _SUMS])
