"""The rings of an evaluation side by side: unseen seeds, unseen levels, unseen rules."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.confidence_intervals import Estimate, reported_estimate, with_interval
from agentrl.config import RINGS
from agentrl.runs.episode_index import readable_episodes
from agentrl.runs.episode_summary import Summary
from agentrl.runs.file_reading import as_object, is_number
from agentrl.runs.run_folder import RunFolder
from agentrl.runs.run_results import ENDS, RESULT_METRICS, results_of, values_by_seed
from agentrl.text.formatting import printable
from agentrl.text_tables import ResultTable

SEEDS = "seeds"
"""The first ring: the held-out seeds."""
RING_COLUMNS = (SEEDS, *RINGS)
"""All rings, from near to far."""
_UNSEEN = "unseen"
_BySeed = Mapping[str, Mapping[str, float]]


def ring_label(name: str, ring: str) -> str:
    """Return the name of a ring's evaluation, such as `after sampled unseen levels`."""
    return f"{name} {_UNSEEN} {ring}"


def ring_of(label: str) -> str:
    """Return the ring of an episode's label, as spelled in episode ids."""
    return next((ring for ring in RINGS if label.endswith(f"-{_UNSEEN}-{ring}")), SEEDS)


def player_of(label: str) -> str:
    """Return an episode's label without its ring: `random` of `random-unseen-levels`."""
    return label.removesuffix(f"-{_UNSEEN}-{ring_of(label)}")


@dataclass(slots=True, kw_only=True, frozen=True)
class RingRow:
    """The results of one evaluation, with a column per ring."""

    player: str
    """What played: `after, sampled`, or the policy's name."""
    metric: str
    """The metric of all columns."""
    estimates: Mapping[str, Estimate]
    """The mean in each ring that was played, with its 95% interval if known."""

    @property
    def cells(self) -> list[str]:
        """The columns as text, in the order of `RING_COLUMNS`; empty for a ring not played."""
        return [with_interval(self.estimates.get(ring)) for ring in RING_COLUMNS]


def ring_rows(
    results: Mapping[str, Any], by_seed: Mapping[str, _BySeed] | None = None
) -> list[RingRow]:
    """Return a row for each evaluation that played rings; empty if none did.

    Args:
        results: contents of `summary.json`, of a training run or of an evaluation.
        by_seed: metrics by seed of each evaluation and ring, by its name in `evaluations.jsonl`;
            gives the means their intervals.
    """
    rows = []
    for name, found in _evaluations(results):
        rings = as_object(found.get("rings"))
        means = {ring: results_of(rings.get(ring)) for ring in RINGS} | {SEEDS: results_of(found)}
        metric = next((one for one in RESULT_METRICS if one in means[SEEDS]), None)
        if not rings or metric is None:
            continue
        end, _, decoding = name.partition(" ")
        estimates = {}
        for ring in RING_COLUMNS:
            if metric in means[ring]:
                label = name if ring == SEEDS else ring_label(name, ring)
                own = {} if by_seed is None else by_seed.get(label, {})
                values = [*values_by_seed(own, metric).values()]
                estimates[ring] = reported_estimate(means[ring][metric], values)
        player = f"{end}, {decoding}" if end in ENDS else name
        rows.append(RingRow(player=printable(player), metric=metric, estimates=estimates))
    return rows


def ring_rows_of(run: Path, episodes: Iterable[Summary] | None = None) -> list[RingRow]:
    """Return the rows of a run's folder, with intervals where results by seed are recorded.

    Args:
        run: the folder of a training run or of an evaluation.
        episodes: an evaluation's episodes, if already read.
    """
    files = RunFolder(run)
    results = {**as_object(files.read_state().get("results")), **files.read_summary()}
    if not ring_rows(results):
        return []
    if "policy" not in results:
        by_seed = {line["name"]: as_object(line.get("by_seed")) for line in files.evaluations()}
        return ring_rows(results, by_seed)
    known = readable_episodes(run) if episodes is None else episodes
    return ring_rows(results, _by_seed(str(results["policy"]), known))


def ring_table(rows: Sequence[RingRow]) -> ResultTable:
    """Return the table of some rows, whose first header is their metric."""
    metrics = list(dict.fromkeys(one.metric for one in rows))
    return ResultTable(
        columns=[" or ".join(metrics), *(f"{_UNSEEN} {ring}" for ring in RING_COLUMNS)],
        rows=[
            [one.player if len(metrics) == 1 else f"{one.player}: {one.metric}", *one.cells]
            for one in rows
        ],
    )


def ring_metrics(name: str, result: Any) -> Iterator[dict[str, float]]:
    """Yield the metrics to log of each ring of a result: `sampled/ring/levels/success`."""
    for full_name, found in _evaluations({name: result}):
        label = full_name.rpartition(" ")[2]
        for ring, numbers in as_object(found.get("rings")).items():
            yield {
                f"{label}/ring/{ring}/{key}": float(value)
                for key, value in as_object(numbers).items()
                if is_number(value)
            }


def _evaluations(results: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and result of each evaluation: `random`, `before sampled`, ..."""
    if "policy" in results:
        yield str(results["policy"]), results
        return
    for name, found in results.items():
        if name in ENDS:
            yield from ((f"{name} {how}", as_object(one)) for how, one in as_object(found).items())
        elif isinstance(found, Mapping):
            yield name, found


def _by_seed(policy: str, episodes: Iterable[Summary]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the metrics of an evaluation's valid episodes, by ring and seed."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for one in episodes:
        if not one.outcome.void:
            ring = ring_of(one.label)
            label = policy if ring == SEEDS else ring_label(policy, ring)
            found.setdefault(label, {})[str(one.seed)] = {**one.metrics, "reward": one.reward}
    return found
