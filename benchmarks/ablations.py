"""Train a job with and without one method, over three seeds: python benchmarks/ablations.py STUDY.

All variants of a study train a packaged configuration with the same number of training episodes,
and are evaluated on the same held-out episodes. Variants with the same demonstrations begin with
the same weights. Runs in `--runs` that have finished are only read, others are resumed.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from compare_runs import Scores, paired_interval
from conditions import conditions
from paired import games_by_evaluation
from records import ENV_REWARD, finish
from rich.console import Console

from agentrl.runs.episode_index import EpisodeIndex
from agentrl.runs.run_folder import RunFolder
from agentrl.text_tables import UNLIMITED, ResultTable, print_table

PLAIN = "plain"
TEACHER = "{teacher}"
"""Placeholder in settings for the folder of the study's teacher, which is trained first."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Variant:
    """A study's job with one method."""

    settings: Sequence[str]
    against: str = PLAIN
    """The variant without the method."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Study:
    """A job, and the methods to try on it."""

    config: str
    """Packaged configuration."""
    metric: str
    variants: Mapping[str, Variant]
    settings: Sequence[str] = ()
    """Settings of all variants."""
    teacher: Sequence[str] | None = None
    """Settings of the teacher's run, instead of those of the variants; None without a teacher."""


_ESTIMATED = (
    "env.state_estimation=true",
    'model.tiny.words=["<action>", "</action>", "<observation>{", "}</observation>", '
    '"<prediction>{", "}</prediction>", player]',
    "rollout.max_new_tokens=40", "rollout.max_context=128",
)  # fmt: skip
STUDIES = {
    "frozen_lake_maps": Study(
        config="frozen_lake_maps", metric="success", settings=["train.steps=6"],
        teacher=["seed=100"],
        variants={
            PLAIN: Variant(settings=[]),
            # Demonstrations as good as the others, of which a random reply has several moves.
            "action chunks": Variant(
                settings=[
                    "env.max_actions_per_reply=5", "env.player_kwargs.noise=0.65",
                    "rollout.max_new_tokens=24", "rollout.max_context=128",
                ],
            ),
            "state estimates": Variant(settings=_ESTIMATED),
            "rewarded state estimates": Variant(
                settings=[
                    *_ESTIMATED,
                    'rewards=[{function: env_reward}, '
                    '{function: "agentrl.rewards.form:action", weight: 0.1}, '
                    '{function: "agentrl.rewards.state_estimation:observation", weight: 0.05}, '
                    '{function: "agentrl.rewards.state_estimation:prediction", weight: 0.05}]',
                ],
                against="state estimates",
            ),
            "grpo": Variant(settings=["algorithm.name=grpo"]),
            "gdpo": Variant(settings=["algorithm.name=gdpo"], against="grpo"),
            "opd": Variant(
                settings=[
                    "algorithm.name=opd", f"algorithm.teacher={TEACHER}",
                    "algorithm.reward_weight=0",
                ],
                against="grpo",
            ),
            "opd and reward": Variant(
                settings=[
                    "algorithm.name=opd", f"algorithm.teacher={TEACHER}",
                    "algorithm.reward_weight=1",
                ],
                against="grpo",
            ),
            "keep_varied": Variant(settings=["algorithm.sampling.keep_varied=0.5"]),
            "entropy_control": Variant(settings=["algorithm.entropy_control.target=0.3"]),
        },
    ),
    # Every game begins on the same square, from where a random player hardly reaches the goal.
    "frozen_lake": Study(
        config="frozen_lake", metric=ENV_REWARD,
        settings=[
            "train.steps=10", "rollout.groups=4", "rollout.group_size=32",
            'env.players={expert: "agentrl.envs.toy_text.players:FrozenLakeExpert"}',
        ],
        variants={
            PLAIN: Variant(settings=[]),
            "horizon": Variant(settings=["env.horizon={start: 10, steps: 8}"]),
            "start": Variant(settings=["env.start={player: expert, turns: 5, steps: 8}"]),
            # Siblings in the same state have the same potential, which cancels in `state_grpo`.
            "turn_grpo": Variant(settings=["algorithm.name=turn_grpo"]),
            "potential": Variant(
                settings=[
                    "algorithm.name=turn_grpo",
                    'env.wrappers=[{wrapper: "agentrl.envs.toy_text.goal_distance:GoalDistance"}]',
                    "rewards=[{function: env_reward}, "
                    '{function: "agentrl.rewards.form:action", weight: 0.1}, '
                    '{function: "agentrl.rewards.shaping:potential", weight: 0.1, '
                    "kwargs: {discount: 0.9}}]",
                ],
                against="turn_grpo",
            ),
            "keep_varied": Variant(settings=["algorithm.sampling.keep_varied=0.5"]),
            "entropy_control": Variant(settings=["algorithm.entropy_control.target=0.3"]),
        },
    ),
}  # fmt: skip


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("study", choices=[*STUDIES])
    parser.add_argument("overrides", nargs="*", help="key=value, for all new runs")
    parser.add_argument("--only", nargs="+", metavar="VARIANT", help="only these variants")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the runs")
    options = parser.parse_args()
    study = STUDIES[options.study]
    chosen = options.only or [*study.variants]
    if unknown := set(chosen) - set(study.variants):
        raise SystemExit(f"{options.study} has no variant {min(unknown)}: {[*study.variants]}")
    teacher = options.runs / f"{options.study}-teacher"
    if study.teacher is not None and any(TEACHER in str(study.variants[one]) for one in chosen):
        finish(teacher, study.config, ["eval.rings=null", *study.teacher, *options.overrides])
    runs: dict[str, list[Path]] = {}
    for name in chosen:
        for seed in options.seeds:
            run = options.runs / f"{options.study}-{name.replace(' ', '-')}-{seed}"
            settings = settings_of(study, name, teacher)
            finish(run, study.config, [*settings, f"seed={seed}", *options.overrides])
            runs.setdefault(name, []).append(run)
    console = Console()
    print(conditions("torch", "transformers"))
    width = console.width if console.is_terminal else UNLIMITED
    for part in table(study, runs).fold(width):
        print_table(part, console)
    print(
        f"metric: {study.metric}; differences: mean and 95% interval over the episodes of all "
        "seeds, paired by episode. The interval does not contain how much training runs differ "
        "by chance; the values of the single seeds show that."
    )


def settings_of(study: Study, variant: str, teacher: Path) -> list[str]:
    """Return what a variant's job sets, without baselines and rings, which are not compared."""
    own = [one.replace(TEACHER, str(teacher)) for one in study.variants[variant].settings]
    return ["eval.rings=null", "eval.baselines=[]", *study.settings, *own]


def table(study: Study, runs: Mapping[str, Sequence[Path]]) -> ResultTable:
    """Return a row for each variant, with its difference to the variant without the method."""
    rows = []
    for name, own in runs.items():
        against = study.variants[name].against
        row = [name, "" if against == name else against]
        for evaluation in ("after sampled", "after greedy"):
            scores = [scores_of(run, evaluation, study.metric) for run in own]
            row.append(" ".join(f"{fmean(one.values()):.3f}" for one in scores))
            row.append(f"{fmean(fmean(one.values()) for one in scores):.3f}")
            row.append("")
            if against != name and against in runs:
                without = [scores_of(run, evaluation, study.metric) for run in runs[against]]
                low, mean, high, _ = paired_interval(pooled(without), pooled(scores))
                row[-1] = f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"
        played = [one for run in own for one in EpisodeIndex(run).all() if one.split == "train"]
        minutes = fmean(sum(RunFolder(run).read_summary()["seconds"].values()) / 60 for run in own)
        row += [
            f"{len(played) / len(own):,.0f}", f"{fmean(one.turns for one in played):.1f}",
            f"{fmean(one.tokens for one in played):.0f}", f"{minutes:.1f}",
        ]  # fmt: skip
        rows.append(row)
    columns = (
        "variant", "against", "sampled, by seed", "mean", "difference", "greedy, by seed", "mean",
        "difference", "episodes", "turns", "tokens", "minutes",
    )  # fmt: skip
    return ResultTable(columns=columns, rows=rows, names=1)


def scores_of(run: Path, evaluation: str, metric: str) -> Scores:
    """Return an evaluation's score by the seed of its episode."""
    games = games_by_evaluation(run)[evaluation]
    return {seed: game[metric] for seed, game in games.items()}


def pooled(scores: Sequence[Scores]) -> Scores:
    """Return the scores of several runs, by the position of the run and the episode's seed."""
    return {
        f"{number} {seed}": score
        for number, run in enumerate(scores)
        for seed, score in run.items()
    }


if __name__ == "__main__":
    main()
