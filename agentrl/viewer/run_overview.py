"""What the first page tells of a run, but the curves, as plain JSON values."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.files import is_locked
from agentrl.replay import Run, Summary
from agentrl.replay.episode_filters import void_causes
from agentrl.text import printable


def overview(run: Run) -> dict[str, Any]:
    """The whole run at a glance."""
    episodes = run.episodes()
    return {
        "name": run.name,
        "env_id": episodes[-1].env_id if episodes else None,
        "count": len(episodes),
        "turns": sum(s.turns for s in episodes),
        "tokens": sum(s.tokens for s in episodes),
        "first": episodes[0].time if episodes else None,
        "last": episodes[-1].time if episodes else None,
        "outcomes": dict(Counter(s.outcome.value for s in episodes)),
        "causes": dict(void_causes(episodes)),
        "configs": list(dict.fromkeys(s.config for s in episodes if s.config)),
        "job": job(run),
        "plays": plays(run),
        "devices": devices(run),
        "config": _read(run.path / "config.yaml"),
        "summary": _parsed(_read(run.path / "summary.json")),
        "state": _parsed(_read(run.path / "state.json")),
    }


def job(run: Run) -> str | None:
    """Whether a job `runs`, has `ended`, or `stopped` before its end; None where there is none.

    The summary is a job's last word; one that went on since has come further than it says.
    """
    worked_in = is_locked(run.path)
    if worked_in is None or worked_in:
        return "runs" if worked_in else None
    told = [_parsed(_read(run.path / name)) for name in ("summary.json", "state.json")]
    summary, state = (one if isinstance(one, dict) else {} for one in told)
    if "policy" in summary:  # an evaluation, which says what it found once it has ended
        return "ended" if "reward" in summary else "stopped"
    ended = "steps" in summary and summary["steps"] == state.get("step")
    return "ended" if ended else "stopped"


def plays(run: Run) -> list[dict[str, Any]]:
    """What was played, with its counts and means: training is one row, all else one a step."""
    found: dict[tuple[str, str, int], list[Summary]] = defaultdict(list)
    for s in run.episodes():
        found[s.split, s.label, -1 if s.split == "train" else s.step].append(s)
    return [_play(episodes) for episodes in found.values()]


def _play(episodes: Sequence[Summary]) -> dict[str, Any]:
    first, last = min(s.step for s in episodes), max(s.step for s in episodes)
    return {
        "label": episodes[0].label, "split": episodes[0].split, "step": last,
        "steps": str(last) if first == last else f"{first} to {last}",
        "count": len(episodes), "void": sum(s.outcome.void for s in episodes),
        "total": _mean([s.total for s in episodes if not s.outcome.void]),
        "won": _mean([float(s.won) for s in episodes if s.won is not None]),
    }  # fmt: skip


def devices(run: Run) -> list[dict[str, Any]]:
    """Of each phone: what was played on it, and what failed there."""
    found: dict[str, list[Summary]] = defaultdict(list)
    for summary in run.episodes():
        if summary.device is not None:
            found[summary.device].append(summary)
    return [
        {
            "device": device,
            "episodes": len(episodes),
            "void": sum(s.outcome.void for s in episodes),
            "causes": dict(void_causes(episodes)),
            "seconds_per_turn": _mean([s.seconds / s.turns for s in episodes if s.turns]),
            "last": max(s.time for s in episodes),
        }
        for device, episodes in sorted(found.items())
    ]


def _read(path: Path) -> str | None:
    try:
        return printable(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def _parsed(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
