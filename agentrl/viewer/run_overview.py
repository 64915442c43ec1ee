"""Data of a run's overview page as JSON values: counts and tables."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentrl.errors import RewardError
from agentrl.replay import Run, Summary
from agentrl.runs.episode_summary import void_causes
from agentrl.runs.failure_modes import SIDE_EFFECTS
from agentrl.runs.file_reading import as_object, is_number, read_object, read_text
from agentrl.runs.job_failure import JOB_LOG
from agentrl.runs.rings import player_of, ring_rows_of, ring_table
from agentrl.runs.run_folder import COMMAND_FILE, CONFIG_FILE, RunFolder
from agentrl.runs.run_paths import audit_file
from agentrl.runs.run_summary import summarize
from agentrl.text.formatting import printable

_MAX_AUDITS = 20


def overview(run: Run) -> dict[str, Any]:
    """Return a run's counts, tables, configuration and state."""
    episodes = run.episodes()
    line = summarize(run.path, episodes=episodes)
    files = RunFolder(run.path)
    state = files.read_state()
    return {
        "name": run.name,
        "env_id": episodes[-1].env_id if episodes else line.environment,
        "count": len(episodes),
        "turns": sum(s.turns for s in episodes),
        "tokens": _sampled_tokens(episodes, line.config),
        "first": episodes[0].time if episodes else None,
        "last": episodes[-1].time if episodes else None,
        "outcomes": dict(Counter(s.outcome.value for s in episodes)),
        "causes": dict(void_causes(episodes)),
        "configs": list(dict.fromkeys(s.config for s in episodes if s.config)),
        "command": _shown(run.path / COMMAND_FILE),
        "job": line.state,
        "host": line.start and line.start.host,
        "code": line.start and line.start.code,
        "tags": list(line.tags),
        "stage": line.stage,
        "failure": None if line.failure is None else asdict(line.failure),
        "log": (run.path / JOB_LOG).is_file(),
        "headline": line.headline,
        "step": line.step,
        "steps": line.steps,
        "plays": rows_by_label(run),
        "rings": rings(run.path, episodes),
        "devices": devices(run),
        "audits": audits(run),
        "config": _shown(run.path / CONFIG_FILE),
        "summary": files.read_summary() or None,
        "state": state if state and is_number(state.get("step", 0)) else None,
    }


def _sampled_tokens(episodes: Sequence[Summary], config: Mapping[str, Any]) -> int:
    """Count the tokens sampled by a model, not by people or scripted players."""
    scripted = {"human", "demo", "noop", "random", "expert"}
    for section, key in (("env", "players"), ("eval", "baselines")):
        names = as_object(config.get(section)).get(key)
        scripted |= set(map(str, names)) if isinstance(names, list | dict) else set()
    return sum(s.tokens for s in episodes if player_of(s.label) not in scripted)


def rows_by_label(run: Run) -> list[dict[str, Any]]:
    """Return counts and means by label and step, with one row for all training steps."""
    by_play: dict[tuple[str, str, int], list[Summary]] = defaultdict(list)
    for s in run.episodes():
        by_play[s.split, s.label, -1 if s.split == "train" else s.step].append(s)
    rows = []
    for episodes in by_play.values():
        first, last = min(s.step for s in episodes), max(s.step for s in episodes)
        row = {
            "label": episodes[0].label, "split": episodes[0].split, "step": last,
            "steps": str(last) if first == last else f"{first} to {last}",
            "count": len(episodes), "void": sum(s.outcome.void for s in episodes),
            "reward": _mean([s.reward for s in episodes if not s.outcome.void]),
            "success": _mean([float(s.success) for s in episodes if s.success is not None]),
            "problems": _problems(episodes),
            "unscored": sum(s.cause == RewardError.__name__ for s in episodes) / len(episodes),
        }  # fmt: skip
        rows.append(row)
    return rows


def rings(run: Path, episodes: Sequence[Summary]) -> dict[str, Any] | None:
    """Return the columns and rows of the table of `eval.rings`; None if no ring was played."""
    if not (rows := ring_rows_of(run, episodes)):
        return None
    table = ring_table(rows)
    return {"columns": table.columns, "rows": table.rows}


def _problems(episodes: Sequence[Summary]) -> str:
    """Describe the failure modes that occurred: `stuck 12%, 0.1 side effects`."""
    texts = []
    for name in dict.fromkeys(name for s in episodes for name in s.failure_modes):
        mean = _mean([s.failure_modes[name] for s in episodes if name in s.failure_modes])
        words = printable(name.replace("_", " "))
        if mean:
            is_count = name == SIDE_EFFECTS
            texts.append(f"{mean:.2g} {words}" if is_count else f"{words} {100 * mean:.3g}%")
    return ", ".join(texts)


def devices(run: Run) -> list[dict[str, Any]]:
    """Return each phone's episodes and failures."""
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


def audits(run: Run) -> list[dict[str, Any]]:
    """Return the latest reports of `agentrl audit` and of a job's running audit, by name."""
    found = audit_file(run.path, "*").parent.glob("[!.]*.json")
    files = [file for file in found if file.is_file()]
    latest = sorted(files, key=lambda file: file.stat().st_mtime)[-_MAX_AUDITS:]
    reports = []
    for file in sorted(latest):
        report = read_object(file)
        # The file may come from an untrusted source.
        cases = report.get("cases")
        if isinstance(cases, list) and all(isinstance(case, dict) for case in cases):
            reports.append({**report, "name": file.stem})
    return reports


def _shown(file: Path) -> str | None:
    """Return a file's text without control characters, or None if it cannot be read."""
    text = read_text(file)
    return None if text is None else printable(text)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
