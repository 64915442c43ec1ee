"""Plays episodes on held-out seeds, and averages their metrics."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from agentrl.confidence_intervals import estimate, student_estimate
from agentrl.data.reward_inputs import ROW
from agentrl.data.row_columns import cell
from agentrl.errors import WorldError, describe_error
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.screen_reading_audit import sum_sight
from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.runs.failure_modes import failure_modes
from agentrl.text.formatting import pluralize
from agentrl.text_tables import ResultTable
from agentrl.training.monitoring.training_health import MAX_TRUNCATED_REPLIES
from agentrl.types import ScoredEpisode, Split

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, frozen=True)
class Evaluation:
    """Result of playing episodes on held-out seeds."""

    metrics: dict[str, float]
    """Means over the valid episodes: `reward`, `turns` and the environment's own metrics; and
    `unscored`, the fraction of episodes whose reward function failed, if any did."""
    episodes: int
    """Number of valid episodes."""
    void: int
    """Number of failed episodes, which are excluded from the means."""
    seconds: float
    """Duration of the evaluation in seconds."""
    by_seed: dict[int, dict[str, float]]
    """Metrics by seed, averaged if a seed is played several times."""
    void_causes: dict[str, int] = field(default_factory=dict)
    """Number of failed episodes by cause, including those that were played again."""
    context_full: int = 0
    """Number of episodes that ended because their context was full."""
    audit: dict[str, dict[str, float]] = field(default_factory=dict)
    """Agreement of an environment's screen reading with the ground truth, by fact: how often it
    `agreed`, out of how many (`of`), and the 95% interval of this rate, from `low` to `high`."""
    run: Path | None = None
    """Folder with the recorded episodes, for `agentrl.replay.open`."""
    model: str | None = None
    """The model's name on the server; None if the model was not served."""
    samples: dict[int, list[dict[str, float]]] = field(default_factory=dict)
    """Metrics of each valid episode, by its seed."""
    categories: dict[int, str] = field(default_factory=dict)
    """Category by seed, for seeds that have one."""
    rings: dict[str, "Evaluation"] = field(default_factory=dict)
    """The results on unseen `levels` and under unseen `rules`, if played (`eval.rings`)."""

    def __repr__(self) -> str:
        means = ", ".join(
            f"{name} {self.metrics[name]:.3g}"
            for name in ("reward", "success", "accuracy")
            if name in self.metrics
        )
        void = f", {self.void} void" if self.void else ""
        if unscored := self.metrics.get("unscored"):
            void += f", {unscored:.1%} unscored"
        rings = "".join(f", unseen {ring}: {found!r}" for ring, found in self.rings.items())
        return f"Evaluation({means}, {pluralize(self.episodes, 'episode')}{void}{rings})"

    def _repr_html_(self) -> str:
        """Return a table of the metrics with 95% confidence intervals over the seeds."""
        intervals = self.intervals()
        rows = [
            (name, mean, " to ".join(f"{end:.4g}" for end in intervals.get(name, ())))
            for name, mean in self.metrics.items()
        ]
        table = ResultTable(columns=("", "mean", "95% interval"), rows=rows)
        where = "" if self.run is None else f", recorded in {self.run}"
        rings = "".join(
            f"<h4>unseen {escape(name)}</h4>{found._repr_html_()}"
            for name, found in self.rings.items()
        )
        return f"<p>{escape(f'{self!r}{where}')}</p>{table.html()}{rings}"

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Return the 95% confidence intervals over the seeds, for metrics that have one."""
        found = {}
        for name in self.metrics:
            values = [seed[name] for seed in self.by_seed.values() if name in seed]
            # Student's t could give an interval outside [0, 1], which is impossible for a
            # proportion.
            of = estimate if name in ("success", "accuracy") else student_estimate
            one = of(values) if values else None
            if one is not None and one.low is not None and one.high is not None:
                found[name] = one.low, one.high
        return found

    def summary(self) -> dict[str, Any]:
        """Return the means and counts as written to `summary.json`, without results per seed.

        The rings' summaries are under the key `rings`.
        """
        counts = {"episodes": self.episodes, "void": self.void, "seconds": round(self.seconds, 1)}
        causes = {f"void/{cause}": count for cause, count in self.void_causes.items()}
        full = {"context_full": self.context_full} if self.context_full else {}
        means = {k: round(v, 4) for k, v in self.metrics.items()}
        rings = {name: one.summary() for name, one in self.rings.items()}
        return {**means, **counts, **causes, **full, **({"rings": rings} if rings else {})}

    def warn(self, name: str) -> None:
        """Warn about void episodes, full contexts and truncated replies, which affect the means."""
        if self.void_causes:
            causes = ", ".join(f"{count} x {cause}" for cause, count in self.void_causes.items())
            log.warning(
                "%s: %s episodes were void (%s); %d of them could not be played again and are "
                "missing",
                name,
                sum(self.void_causes.values()),
                causes,
                self.void,
            )
        if self.context_full:
            log.warning(
                "%s: %d episodes ended because their context was full; raise rollout.max_context, "
                "or set a shorter env.history",
                name,
                self.context_full,
            )
        if (share := self.metrics.get("truncated_replies", 0.0)) > MAX_TRUNCATED_REPLIES:
            log.warning(
                "%s: %.0f%% of the replies were cut off; raise rollout.max_new_tokens",
                name,
                100 * share,
            )

    def record(self, name: str, step: int) -> dict[str, Any]:
        """Return a line of `evaluations.jsonl`, with results per seed for paired comparisons."""
        left_out = {"run", "model", "samples", "categories", "rings"}
        if not self.audit:
            left_out.add("audit")
        kept = {key: value for key, value in asdict(self).items() if key not in left_out}
        return {"name": name, "step": step, **kept}


def episode_metrics(scored: ScoredEpisode) -> dict[str, float]:
    """Return an episode's metrics: reward, length, failure modes, and `info["metrics"]`.

    The environment's metrics are those of the last turn. If the reward has several components, each
    is included unweighted as `reward/NAME`.
    """
    turns = scored.episode.turns
    own = turns[-1].info.get("metrics", {}) if turns else {}
    unreadable = sum(t.parse_error is not None for t in turns)
    components = {f"reward/{name}": float(sum(v)) for name, v in scored.components.items()}
    return {
        "reward": scored.reward,
        "turns": float(len(turns)),
        "unreadable": unreadable / max(1, len(turns)),
        **failure_modes(scored.episode),
        **{str(k): float(v) for k, v in own.items()},
        **(components if len(components) > 1 else {}),
    }


def mean_metrics(episodes: Sequence[ScoredEpisode]) -> dict[str, float]:
    """Return the mean of each metric over the valid episodes; empty without valid episodes."""
    return _means([episode_metrics(e) for e in episodes if not e.episode.outcome.void])


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: float(np.mean([row[key] for row in rows if key in row])) for key in keys}


async def play_held_out(
    rollouts: Rollouts,
    chosen: Sequence[int],
    *,
    split: Split = "eval",
    name: str = "eval",
    step: int = 0,
    player: str | None = None,
    greedy: bool = False,
    mixture: Mapping[str, float] = MappingProxyType({"": 1.0}),
    samples: int = 1,
    category: str | None = None,
    check: Callable[[Sequence[ScoredEpisode]], None] = lambda played: None,
) -> Evaluation:
    """Play episodes on held-out seeds; scripted players make the same random draws each time.

    Args:
        rollouts: rollouts that play the episodes.
        chosen: the seed of each episode.
        split: split of the seeds: `eval`, or `demo` for the demonstrations' seeds.
        name: distinguishes this evaluation from others at the same step; part of episode ids.
        step: number of training steps of the model.
        player: a scripted player; None for the model.
        greedy: the model always takes its most probable token.
        mixture: the weight of each environment (`Config.mixture_weights`), or of a single ring of
            `eval.rings`. All environments are played on the same seeds.
        samples: number of episodes per seed.
        category: where a seed's category is: a column of the data, or a key of `reset`'s info.
        check: called with the episodes; raises an error if they are unusable.

    Raises:
        WorldError: more than half of the episodes are void, or no phone is left.
    """
    started = time.perf_counter()
    label = name.replace(" ", "-")
    # Collect all environments together: none waits for the slowest episode of another.
    seeds = [*chosen] * len(mixture)
    envs = [name for name in mixture for _ in chosen]
    requests = requests_of_step(split, step, seeds, samples, label, envs=envs)
    played = await rollouts.collect(requests, player, greedy)
    check(played)
    size = len(chosen) * samples
    found = _evaluation(played[:size], category)
    if len(mixture) > 1:
        starts = range(0, len(played), size)
        each = [_evaluation(played[start : start + size], category) for start in starts]
        found = _combined(dict(zip(mixture, each, strict=True)), mixture)
    audit = sum_sight(scored.episode for scored in played).summary()
    progress = rollouts.progress
    found = replace(
        found,
        seconds=time.perf_counter() - started,
        audit=audit,
        metrics={**found.metrics, **progress.unscored_metrics()},
        void_causes=dict(progress.void),
        context_full=progress.context_full,
    )
    found.warn(name)
    return found


def warn_of_failed_ring(name: str, error: WorldError) -> None:
    """Warn that an evaluation's ring (`eval.rings`) has no result."""
    log.warning("%s: no result, because it failed: %s", name, describe_error(error))


def _evaluation(played: Sequence[ScoredEpisode], category: str | None) -> Evaluation:
    valid = [e for e in played if not e.episode.outcome.void]
    by_seed: dict[int, list[dict[str, float]]] = {}
    for scored in valid:
        by_seed.setdefault(scored.episode.seed, []).append(episode_metrics(scored))
    return Evaluation(
        metrics=mean_metrics(played),
        episodes=len(valid),
        void=len(played) - len(valid),
        seconds=0.0,
        by_seed={seed: _means(rows) for seed, rows in by_seed.items()},
        samples=by_seed,
        categories={} if category is None else _categories(valid, category),
    )


def _combined(found: Mapping[str, Evaluation], weights: Mapping[str, float]) -> Evaluation:
    """Combine a mixture's evaluations: weighted means, and each environment's as `env/NAME/`."""
    seeds = dict.fromkeys(seed for one in found.values() for seed in one.by_seed)
    return Evaluation(
        metrics=_weighted({name: one.metrics for name, one in found.items()}, weights),
        episodes=sum(one.episodes for one in found.values()),
        void=sum(one.void for one in found.values()),
        seconds=0.0,
        by_seed={
            seed: _weighted(
                {name: one.by_seed[seed] for name, one in found.items() if seed in one.by_seed},
                weights,
            )
            for seed in seeds
        },
    )


def _weighted(
    metrics: Mapping[str, Mapping[str, float]], weights: Mapping[str, float]
) -> dict[str, float]:
    """Average each metric over the environments that have it; add each environment's own."""
    means = {}
    for key in dict.fromkeys(key for own in metrics.values() for key in own):
        having = [name for name, own in metrics.items() if key in own]
        total = sum(weights[name] for name in having)
        means[key] = sum(weights[name] * metrics[name][key] for name in having) / total
    return means | {
        f"env/{n}/{key}": value for n, own in metrics.items() for key, value in own.items()
    }


def _categories(valid: Sequence[ScoredEpisode], key: str) -> dict[int, str]:
    by_seed = {e.episode.seed: category_of(e.episode.reset_info, key) for e in valid}
    return {seed: value for seed, value in by_seed.items() if value is not None}


def category_of(info: Mapping[str, Any], key: str) -> str | None:
    """Return an episode's category: a cell of its row, or else a value of its first info.

    Args:
        info: info of the first observation.
        key: a column of the data set, or a key of the info; `a.b` is key b of the object in a.
    """
    row = info.get(ROW)
    for place in (row if isinstance(row, Mapping) else {}, info):
        if (value := cell(place, key)) is not None:
            return str(value)
    return None
