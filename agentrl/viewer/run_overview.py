"""The overview page of a run as JSON values, without the curves."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.files import is_locked
from agentrl.replay import Run, Summary
from agentrl.replay.episode_summary import void_causes
from agentrl.text import printable


def overview(run: Run) -> dict[str, Any]:
    """Counts, tables, configuration and state of a run."""
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
        "job": job_state(run),
        "plays": rows_by_label(run),
        "devices": devices(run),
        "config": _read(run.path / "config.yaml"),
        "summary": _parsed(_read(run.path / "summary.json")),
        "state": _parsed(_read(run.path / "state.json")),
    }


def job_state(run: Run) -> str | None:
    """`runs`, `ended`, or `stopped` (before its end); None if the run has no job.

    A job writes `summary.json` when it ends; if it was resumed since, `state.json` is ahead of it.
    """
    worked_in = is_locked(run.path)
    if worked_in is None or worked_in:
        return "runs" if worked_in else None
    files = [_parsed(_read(run.path / name)) for name in ("summary.json", "state.json")]
    summary, state = (content if isinstance(content, dict) else {} for content in files)
    if "policy" in summary:  # an evaluation, which adds its results when it ends
        return "ended" if "reward" in summary else "stopped"
    ended = "steps" in summary and summary["steps"] == state.get("step")
    return "ended" if ended else "stopped"


def rows_by_label(run: Run) -> list[dict[str, Any]]:
    """Counts and means by label and step; all training steps share one row."""
    by_play: dict[tuple[str, str, int], list[Summary]] = defaultdict(list)
    for s in run.episodes():
        by_play[s.split, s.label, -1 if s.split == "train" else s.step].append(s)
    return [_play(episodes) for episodes in by_play.values()]


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
    """Episodes and failures of each phone."""
    by_device: dict[str, list[Summary]] = defaultdict(list)
    for summary in run.episodes():
        if summary.device is not None:
            by_device[summary.device].append(summary)
    return [
        {
            "device": device,
            "episodes": len(episodes),
            "void": sum(s.outcome.void for s in episodes),
            "causes": dict(void_causes(episodes)),
            "seconds_per_turn": _mean([s.seconds / s.turns for s in episodes if s.turns]),
            "last": max(s.time for s in episodes),
        }
        for device, episodes in sorted(by_device.items())
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
