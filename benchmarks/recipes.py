"""Measure what each stage of a pipeline gains, over seeds: python benchmarks/recipes.py NAME.

`text_to_figures` also runs with its first training stage on figures, so that both variants train
for the same number of steps. `sft_dpo_rl` is evaluated after each stage. Evaluations with the same
seed play the same held-out episodes, which are paired. Finished stages in `--folder` are kept.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compare_runs import Scores, evaluations, paired_interval
from conditions import conditions
from rich.console import Console
from rich.table import Table

import agentrl
from agentrl.confidence_intervals import student_estimate
from agentrl.training.pipeline import run_pipeline

DECODINGS = ("sampled", "greedy")


@dataclass(slots=True, kw_only=True, frozen=True)
class Point:
    """An evaluation to compare."""

    arm: str
    run: str
    """Folder name of the stage's run."""
    when: str
    """`before` or `after` the stage's training."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Recipe:
    """A pipeline and the evaluations to compare."""

    metric: str
    arms: Mapping[str, Sequence[str]]
    """Overrides by arm name."""
    points: Mapping[str, Point]
    gains: Sequence[tuple[str, str]]
    """Pairs of point names, the later point first."""


RECIPES = {
    "text_to_figures": Recipe(
        metric="accuracy",
        arms={
            "two stages": (),
            "direct": ("text.env.kwargs={data: geometry, level: areas, pixels: 168}",),
        },
        points={
            "imitation": Point(arm="direct", run="2-text", when="before"),
            "text only": Point(arm="two stages", run="3-figures", when="before"),
            "text, figures": Point(arm="two stages", run="3-figures", when="after"),
            "figures, half": Point(arm="direct", run="3-figures", when="before"),
            "figures": Point(arm="direct", run="3-figures", when="after"),
        },
        gains=[
            ("text only", "imitation"),
            ("text, figures", "imitation"),
            ("figures", "imitation"),
            ("text, figures", "figures"),
        ],
    ),
    "sft_dpo_rl": Recipe(
        metric="success",
        arms={"": ()},
        points={
            "imitation": Point(arm="", run="1-imitate", when="before"),
            "preferences": Point(arm="", run="3-reinforce", when="before"),
            "reinforcement": Point(arm="", run="3-reinforce", when="after"),
        },
        gains=[("preferences", "imitation"), ("reinforcement", "preferences")],
    ),
}


def main() -> None:
    """Run missing stages and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("name", choices=[*RECIPES])
    parser.add_argument("overrides", nargs="*", help="key=value, for all arms")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--folder", type=Path, default=Path("runs"))
    options = parser.parse_args()
    recipe, console = RECIPES[options.name], Console(width=130)
    console.print(conditions())
    found: dict[int, dict[str, dict[str, Scores]]] = {}
    for seed in options.seeds:
        folders = {
            arm: played(options.name, arm, seed, [*own, *options.overrides], options.folder)
            for arm, own in recipe.arms.items()
        }
        found[seed] = {
            name: scores(folders[point.arm] / point.run, point.when, recipe.metric)
            for name, point in recipe.points.items()
        }
    for decoding in DECODINGS:
        console.print(_values(decoding, recipe, found))
        console.print(_gains(decoding, recipe, found))


def played(name: str, arm: str, seed: int, overrides: Sequence[str], folder: Path) -> Path:
    """Run or resume a pipeline if it is not finished; return its folder."""
    run = "-".join([name, *arm.split(), str(seed)])
    resume = folder / run if (folder / run / "pipeline.yaml").is_file() else None
    own = [] if resume else [f"seed={seed}", f"run.name={run}", f"run.dir={folder}", *overrides]
    file = Path(agentrl.__file__).parent / "configs" / "pipelines" / f"{name}.yaml"
    return run_pipeline(file, overrides=own, resume=resume)


def scores(run: Path, when: str, metric: str) -> dict[str, Scores]:
    """Return the score of each held-out episode, by decoding method."""
    by_name = evaluations(run, metric)
    return {decoding: by_name[f"{when} {decoding}"] for decoding in DECODINGS}


def _values(
    decoding: str, recipe: Recipe, found: Mapping[int, Mapping[str, Mapping[str, Scores]]]
) -> Table:
    table = Table("seed", *recipe.points, title=f"{recipe.metric}, {decoding}")
    for seed, points in found.items():
        each = [points[name][decoding].values() for name in recipe.points]
        table.add_row(str(seed), *(f"{sum(values) / len(values):.3f}" for values in each))
    return table


def _gains(
    decoding: str, recipe: Recipe, found: Mapping[int, Mapping[str, Mapping[str, Scores]]]
) -> Table:
    """Tabulate differences with 95% intervals: over episodes per seed, over seeds for the mean."""
    heads = [f"{later} - {earlier}" for later, earlier in recipe.gains]
    table = Table("seed", *heads, title=f"difference in {recipe.metric}, {decoding}")
    means: list[list[float]] = [[] for _ in recipe.gains]
    for seed, points in found.items():
        cells = []
        for (later, earlier), column in zip(recipe.gains, means, strict=True):
            low, mean, high, _ = paired_interval(points[earlier][decoding], points[later][decoding])
            column.append(mean)
            cells.append(f"{mean:+.3f} ({low:+.3f} to {high:+.3f})")
        table.add_row(str(seed), *cells)
    table.add_row("mean", *map(_mean, means))
    return table


def _mean(values: Sequence[float]) -> str:
    found = student_estimate(values)
    if found.low is None or found.high is None:
        return f"{found.mean:+.3f}"
    return f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


if __name__ == "__main__":
    main()
