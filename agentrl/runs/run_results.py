"""Results of a run, before and after training, with their intervals."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from agentrl.confidence_intervals import Estimate, estimate, reported_estimate, student_estimate
from agentrl.runs.episode_summary import Summary
from agentrl.runs.file_reading import as_object, is_number
from agentrl.runs.run_folder import RunFolder
from agentrl.text.formatting import printable

ENDS = ("before", "after")
_COMPARED = ("reward", "success", "accuracy", "score", "loss", "token_accuracy", "unscored")
RESULT_METRICS = ("success", "accuracy", "score", "reward", "token_accuracy", "loss")
"""Candidates for a run's result; the first metric that was measured counts."""
_BySeed = Mapping[str, Mapping[str, float]]


def results_of(found: Any) -> dict[str, float]:
    """Return the metrics by which runs are compared, from sampled play or held-out examples."""
    numbers = as_object(as_object(found).get("sampled", found))
    return {name: numbers[name] for name in _COMPARED if is_number(numbers.get(name))}


def estimates_of(
    run: Path, results: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, Estimate]]:
    """Estimate `before`, `after` and their `difference`, paired by seed, for each metric."""
    played = {end: by_seed for end, by_seed in evaluated_metrics(run).items() if end in ENDS}
    found: dict[str, dict[str, Estimate]] = {}
    for metric in results["after"]:
        values = {end: values_by_seed(played.get(end, {}), metric) for end in ENDS}
        estimates = {end: estimate([*own.values()]) for end, own in values.items() if own}
        # A mixture's result is weighted, so results by seed do not show its precision.
        if any(
            not math.isclose(one.mean, results[end].get(metric, math.nan), abs_tol=1e-3)
            for end, one in estimates.items()
        ):
            continue
        before, after = values.values()
        if shared := [after[seed] - before[seed] for seed in before if seed in after]:
            estimates["difference"] = student_estimate(shared)
        found[metric] = estimates
    return found


def evaluated_metrics(run: Path) -> dict[str, _BySeed]:
    """Return metrics of sampled play by seed: `before`, `after`, and at the `latest` step."""
    played = dict[str, _BySeed]()
    for line in RunFolder(run).evaluations():
        end, _, decoding = line["name"].partition(" ")
        by_seed = as_object(line.get("by_seed"))
        if decoding == "sampled":
            played[end] = by_seed
        elif end == "step":
            played["latest"] = by_seed
    return played


def episode_metrics(episodes: Sequence[Summary]) -> dict[str, list[float]]:
    """Return the episodes' values of the metrics by which runs are compared."""
    found = dict[str, list[float]]()
    for one in episodes:
        success = {} if one.success is None else {"success": float(one.success)}
        for name, value in {**one.metrics, "reward": one.reward, **success}.items():
            if name in _COMPARED:
                found.setdefault(name, []).append(value)
    return found


def result_of(
    results: Mapping[str, Any],
    evaluated: Mapping[str, _BySeed],
    played: Mapping[str, Sequence[float]],
) -> tuple[str | None, Estimate | None, Estimate | None]:
    """Return a run's result: the metric, and its estimates before and after training."""
    if "policy" in results:
        ends = {"after": results_of(results)}
    elif played:
        ends = {"after": {name: fmean(values) for name, values in played.items()}}
    else:
        ends = {end: results_of(results.get(end)) for end in ENDS}
    names = {name for end in ends.values() for name in end}
    metric = next((name for name in RESULT_METRICS if name in names), None)
    if metric is None:
        return None, None, None
    found = dict[str, Estimate]()
    for end, numbers in ends.items():
        values = played.get(metric) or [*values_by_seed(evaluated.get(end, {}), metric).values()]
        if metric in numbers:
            found[end] = reported_estimate(numbers[metric], values)
    if "after" not in found and (latest := values_by_seed(evaluated.get("latest", {}), metric)):
        found["after"] = estimate([*latest.values()])
    return metric, found.get("before"), found.get("after")


def best_player(results: Mapping[str, Any], metric: str | None) -> tuple[str, float] | None:
    """Return the scripted player with the best result."""
    players = {
        name: numbers[metric]
        for name, numbers in results.items()
        if name not in ENDS and isinstance(numbers, Mapping) and is_number(numbers.get(metric))
    }
    best = max(players, key=players.__getitem__, default=None)
    return None if best is None else (printable(best), players[best])


def values_by_seed(by_seed: _BySeed, metric: str) -> dict[str, float]:
    """Return a metric's finite values, by seed."""
    rows = ((seed, as_object(row).get(metric)) for seed, row in by_seed.items())
    return {seed: float(value) for seed, value in rows if is_number(value)}
