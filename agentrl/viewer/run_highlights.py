"""The episodes of a run to look at first."""

from collections.abc import Sequence
from typing import Any

from agentrl.errors import AgentRLError, EpisodeRemoved
from agentrl.replay import Run, Summary
from agentrl.runs.rings import SEEDS, ring_of
from agentrl.viewer.episodes.page_data import row

_SHOWN = 4
"""Maximum number of best, of worst and of changed episodes."""
_BEFORE, _AFTER = "before-sampled", "after-sampled"


class LastScreens:
    """The last screen of each episode, reading each episode's file only once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._kept: dict[tuple[str, float], dict[str, str | None]] = {}

    def of(self, summary: Summary) -> dict[str, str | None]:
        """Return the last `frame`'s id, the text `shown` with it, and why it is `lost`, if so."""
        key = summary.id, summary.time
        try:
            if key not in self._kept:
                self._kept[key] = self._read(summary)
            return self._kept[key]
        except AgentRLError as error:
            why = "pruned" if isinstance(error, EpisodeRemoved) else "cannot be read"
            return {"frame": None, "shown": "", "lost": why}

    def _read(self, summary: Summary) -> dict[str, str | None]:
        episode = self._run.read(summary).episode
        turns = episode.turns[::-1]
        frames = [*episode.final_frames] or [id for turn in turns[:1] for id in turn.frames]
        shown = episode.final_shown or next((turn.shown for turn in turns), "")
        return {"frame": frames[-1] if frames else None, "shown": shown[:500], "lost": None}


def highlights(run: Run, screens: LastScreens) -> dict[str, Any]:
    """Return the best and worst of the latest episodes, and those that training changed most.

    Returns:
        `label` and `step` of the latest episodes; `best` and `worst`: rows of episodes, each with
        its last `frame`; no worst episodes if all have the same reward; `changed`: pairs of rows,
        `before` and `after` training, on the same seed.
    """
    valid = [
        one
        for one in run.episodes()
        if not one.outcome.void and not one.removed and ring_of(one.label) == SEEDS
    ]
    after = _first_by_seed([one for one in valid if one.label == _AFTER])
    before = _first_by_seed([one for one in valid if one.label == _BEFORE])
    latest = [*after.values()] or _latest(valid)
    ranked = sorted(latest, key=lambda one: (one.reward, one.id), reverse=True)
    # Do not show an episode as both best and worst.
    half = min(_SHOWN, (len(ranked) + 1) // 2)
    best = ranked[:half]
    worst = [one for one in ranked[half:][::-1][:half] if one.reward < best[0].reward]

    def shown(summary: Summary) -> dict[str, Any]:
        return row(summary) | screens.of(summary)

    shared = sorted(
        before.keys() & after.keys(),
        key=lambda seed: (abs(after[seed].reward - before[seed].reward), seed),
        reverse=True,
    )
    changed = [seed for seed in shared if after[seed].reward != before[seed].reward][:_SHOWN]
    return {
        "label": latest[0].label if latest else None,
        "step": latest[0].step if latest else None,
        "best": [shown(one) for one in best],
        "worst": [shown(one) for one in worst],
        "changed": [
            {"before": shown(before[seed]), "after": shown(after[seed])} for seed in changed
        ],
    }


def _first_by_seed(episodes: Sequence[Summary]) -> dict[int, Summary]:
    return {one.seed: one for one in reversed(episodes)}


def _latest(episodes: Sequence[Summary]) -> list[Summary]:
    """Return the last evaluation's episodes, or else the last training step's."""
    played = [one for one in episodes if one.split == "eval"] or list(episodes)
    if not played:
        return []
    last = played[-1]
    return [one for one in played if (one.label, one.step) == (last.label, last.step)]
