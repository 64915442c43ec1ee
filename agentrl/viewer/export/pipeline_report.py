"""Render a pipeline as a single HTML page: stage results, curves, and differing settings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl import config as configuration
from agentrl.confidence_intervals import Estimate, with_interval
from agentrl.runs.run_folder import CONFIG_FILE
from agentrl.text.formatting import format_duration
from agentrl.training.evaluation.suite_table import number
from agentrl.training.pipeline import stored_pipeline
from agentrl.viewer.export.html_pages import render
from agentrl.viewer.export.run_report import CANVAS, charts_of

_CURVES = 2
"""Maximum number of charts per stage; reward or loss come first."""
_MAX_TEXT = 200
"""Maximum number of characters of a setting to show."""


def pipeline_report(folder: Path) -> bytes:
    """Render a pipeline's page.

    Raises:
        ConfigError: the folder has no pipeline, or a run cannot be read.
    """
    folder = folder.absolute()
    pipeline = stored_pipeline(folder)
    runs, rows = pipeline.runs(folder), {row["stage"]: row for row in pipeline.report(folder)}
    stages = [
        {
            "name": stage.name,
            "job": stage.job,
            "run": runs[stage.name].name,
            **_outcome(rows.get(stage.name)),
            "charts": charts_of(runs[stage.name])[:_CURVES],
        }
        for stage in pipeline.stages
    ]
    return render(
        "pipeline.html.jinja",
        name=folder.name,
        stages=stages,
        finished=len(rows),
        took=format_duration(60 * sum(row["minutes"] for row in rows.values())),
        settings=_differing(runs, folder),
        **CANVAS,
    )


def _outcome(row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a stage's steps, time and results; `steps` is None if the stage has not finished."""
    if row is None:
        return {"steps": None, "took": "", "results": []}
    results = []
    for name, value in row["after"].items():
        ends, before = row["intervals"].get(name, {}), row["before"].get(name)
        change = None if before is None else value - before
        results.append(
            {
                "name": name,
                "before": _text(before, ends.get("before")),
                "after": _text(value, ends.get("after")),
                "difference": _text(change, ends.get("difference"), signed=True),
            }
        )
    took = format_duration(60 * row["minutes"])
    return {"steps": row["steps"], "took": took, "results": results}


def _text(mean: float | None, ends: Sequence[float] | None, *, signed: bool = False) -> str:
    if mean is None:
        return ""
    low, high = ends or (None, None)
    return with_interval(Estimate(mean=mean, count=0, low=low, high=high), number, signed=signed)


def _differing(runs: Mapping[str, Path], folder: Path) -> list[tuple[str, list[str]]]:
    """Return the settings that differ between started stages, with one string per stage."""
    by_stage = [
        configuration.flat_settings(
            configuration.changed_settings(configuration.load(run / CONFIG_FILE))
        )
        if (run / CONFIG_FILE).is_file()
        else None
        for run in runs.values()
    ]
    started = [settings for settings in by_stage if settings is not None]
    keys = sorted({key for settings in started for key in settings if not key.startswith("run.")})
    return [
        (
            key,
            [_shown(settings.get(key), folder) if settings else "" for settings in by_stage],
        )
        for key in keys
        if any(one.get(key) != started[0].get(key) for one in started)
    ]


def _shown(value: Any, folder: Path) -> str:
    """Return a setting as a string, with paths relative to the pipeline, or '' for the default."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    text = text.replace(f"{folder}/", "")
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
