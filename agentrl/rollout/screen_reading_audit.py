"""Compare an environment's readings of its screens with the true state."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from agentrl.confidence_intervals import GroupSums
from agentrl.devices.vision.vision_audit import VisionAudit
from agentrl.errors import ConfigError
from agentrl.replay import RecordedEpisode, Run
from agentrl.rollout.reward_audit import MAX_CASES, AuditReport, with_last_frames
from agentrl.types import Episode

SIGHT = "sight"
"""Name of the audit of screen readings (`info["audit"]`)."""


def audit_sight(run: Run, recorded: Iterable[RecordedEpisode]) -> AuditReport:
    """Audit an environment's screen readings; an episode agrees if all its readings do.

    Raises:
        ConfigError: no episode has an audit of screen readings.
    """
    opened = [before.episode for before in recorded]
    by_episode = {one.id: audit for one in opened if (audit := sum_sight([one])).fields}
    misread = {
        id: sum(found.of - found.agreed for found in audit.fields.values())
        for id, audit in by_episode.items()
    }
    wrong = sorted((-count, id) for id, count in misread.items() if count)
    groups: defaultdict[str, list[bool]] = defaultdict(list)
    for one in opened:
        if one.id in misread:
            groups[one.group].append(misread[one.id] > 0)
    sums = GroupSums.of_groups((sum(misreads), len(misreads)) for misreads in groups.values())
    episodes = len(by_episode)
    if not episodes:
        raise ConfigError(
            f"{run.path}: no episode has an audit of screen readings (info['audit']); the number "
            "game records one with env.kwargs.truth=audit"
        )
    cases = [
        {"id": id, "kind": "misread", "score": float(-count), "truth": 0.0}
        for count, id in wrong[:MAX_CASES]
    ]
    return AuditReport(
        candidate=SIGHT,
        truth="state",
        accept_at=0.0,
        truth_at=0.0,
        episodes=episodes,
        agreement=sums.share().complement(),
        false_accepts=GroupSums().share(),
        false_rejects=GroupSums().share(),
        cases=with_last_frames(run, cases),
        facts=sum_sight(opened).summary(),
    )


def sum_sight(episodes: Iterable[Episode]) -> VisionAudit:
    """Sum the audits of screen readings (`info["audit"]`) over the valid episodes."""
    audit = VisionAudit()
    for episode in (e for e in episodes if not e.outcome.void):
        # Turns without an action have no new screen.
        acted = [one for turn in episode.turns if turn.action is not None for one in turn.infos]
        for entry in (info.get("audit") for info in (episode.reset_info, *acted)):
            if isinstance(entry, Mapping) and entry.keys() == {"agreed", "differs"}:
                audit.add_comparison(entry)
    return audit
