"""Train every algorithm briefly from the same warm start (python benchmarks/algorithms.py).

The number game has ten rounds per game, and picking a card also confirms it (`mode: select`). All
of `agentrl algorithms` start from the same warm start and use their own settings with the same
games, optimizer and number of steps. They are then evaluated on held-out seeds. Prints the accuracy
when sampling, with a column per seed.

Finished work is kept below --out and skipped: stop at any time and continue with the same command.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from conditions import conditions
from rich.console import Console
from rich.table import Table

import agentrl
from agentrl import config as configuration
from agentrl.config import Config, algorithm_config
from agentrl.extension_points import ALGORITHM
from agentrl.files import write_durably

_CONFIG = Path(__file__).parents[1] / "configs" / "number_game.yaml"
_SETTINGS = [
    "env.kwargs.mode=select", "env.max_turns=11",
    "devices.source=virtual:32", "devices.size=[252,448]", "rollout.engine=hf",
    "rollout.launcher=local", "rollout.max_new_tokens=16",
    "eval.baselines=[]", "eval.every=0", "eval.episodes=1", "eval.episodes_during=1",
    "run.frames=none", "logging=[file]",
]  # fmt: skip
_TINY: Mapping[str, Any] = {"critic": {"lr": 1e-3}, "implicit_reward": {"lr": 1e-4}}
"""The tiny model needs a hundred times the default learning rates, here as for the policy."""
_OTHERS: Mapping[str, Mapping[str, Any]] = {
    # As in `configs/number_game.yaml`, each pick is rewarded immediately.
    "state_grpo, discount 0": {"name": "state_grpo", "discount": 0.0},
    "turn_grpo, discount 0": {"name": "turn_grpo", "discount": 0.0},
}


def main() -> None:
    """Train the missing runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/algorithms"))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--games", type=int, default=64, help="games per evaluation")
    parser.add_argument("--warm-steps", type=int, default=600)
    parser.add_argument("--only", nargs="*", default=[], help="algorithms; all by default")
    parser.add_argument("--set", nargs="*", default=[], help="settings of every run: key=value")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        _do(Path(options.one))
        return
    print(conditions("torch", "transformers"))
    out: Path = options.out
    base = configuration.load(_CONFIG, [*_SETTINGS, f"run.dir={out}", *options.set])
    warm = _warm(base, options.warm_steps)
    asked = options.only or [*(one.name for one in ALGORITHM.extensions()), *_OTHERS]
    before = _result(out, "warm", warm, options.games)
    print(f"warm start: {_shown(before)}\n")
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in asked}
    for seed in range(options.seeds):  # one seed at a time, so that a partial table is fair
        for name in asked:
            job = _job(base, name, seed, options.steps, out / "warm" / "model")
            result = _result(out, f"{name.replace(', discount ', '-')}-{seed}", job, options.games)
            found[name].append(result)
            print(f"{name}, seed {seed}: {_shown(result)}", file=sys.stderr)
    _print(found, before)


def _warm(base: Config, steps: int) -> Config:
    """Clone a player that picks the right card in half of the rounds."""
    assert base.warm_start is not None
    warm = replace(base.warm_start, steps=steps, cache=None)
    return replace(
        base,
        warm_start=warm,
        train=replace(base.train, steps=0),
        run=replace(base.run, name="warm"),
    )


def _job(base: Config, name: str, seed: int, steps: int, model: Path) -> Config:
    own = dict(_OTHERS.get(name, {"name": name}))
    has = {field.name for field in fields(ALGORITHM.resolve(own["name"]).Config)}
    tiny = {section: settings for section, settings in _TINY.items() if section in has}
    algorithm = algorithm_config(**own, **tiny, minibatch=base.algorithm.minibatch)
    return replace(
        base,
        seed=seed,
        algorithm=algorithm,
        warm_start=None,
        model=replace(base.model, path=str(model.absolute())),
        train=replace(base.train, steps=steps),
        run=replace(base.run, name=f"{name.replace(', discount ', '-')}-{seed}"),
    )


def _result(out: Path, name: str, job: Config, games: int) -> Mapping[str, Any]:
    """Return the result of a run, training it in a separate process if necessary."""
    file = out / "results" / f"{name}.json"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        asked = {"config": job.to_dict(), "games": games, "result": str(file)}
        task = file.with_suffix(".task")
        task.write_text(json.dumps(asked))
        with (file.parent / f"{name}.log").open("w") as log:
            done = subprocess.run(
                [sys.executable, __file__, "--one", str(task)],
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            return {"failed": f"ended with {done.returncode}, see {log.name}"}
    found: Mapping[str, Any] = json.loads(file.read_text())
    return found


def _do(task: Path) -> None:
    """Train one run, from its last checkpoint if there is one, and evaluate it."""
    asked = json.loads(task.read_text())
    config = configuration.from_dict(asked["config"])
    run = Path(config.run.dir) / str(config.run.name)
    agentrl.train(config, resume=run if (run / "config.yaml").is_file() else None)
    summary = json.loads((run / "summary.json").read_text())
    played = {
        how: agentrl.evaluate(run, episodes=asked["games"], greedy=how == "greedy")
        for how in ("sampled", "greedy")
    }
    result = {
        how: {key: metrics.summary()[key] for key in ("accuracy", "reward", "episodes")}
        for how, metrics in played.items()
    }
    spent = {"steps": summary["steps"], "seconds": summary["seconds"]}
    write_durably(Path(asked["result"]), json.dumps(result | spent))


def _shown(result: Mapping[str, Any]) -> str:
    if "failed" in result:
        return str(result["failed"])
    return ", ".join(f"{how} {result[how]['accuracy']:.3f}" for how in ("sampled", "greedy"))


def _print(found: Mapping[str, list[Mapping[str, Any]]], before: Mapping[str, Any]) -> None:
    count = max(map(len, found.values()))
    seeds = [f"seed {seed}" for seed in range(count)]
    table = Table("algorithm", *seeds, "mean", "greedy, mean", "s a step")
    table.add_row("(before)", *[""] * count, *_means([before]), "")
    for name, results in sorted(found.items(), key=lambda item: -_mean(item[1], "sampled")):
        cells = ["failed" if "failed" in r else f"{r['sampled']['accuracy']:.3f}" for r in results]
        table.add_row(name, *cells, *_means(results), _pace(results))
    Console(width=100).print(table)


def _means(results: list[Mapping[str, Any]]) -> list[str]:
    return [f"{_mean(results, how):.3f}" for how in ("sampled", "greedy")]


def _mean(results: Iterable[Mapping[str, Any]], how: str) -> float:
    values = [result[how]["accuracy"] for result in results if "failed" not in result]
    return sum(values) / len(values) if values else float("nan")


def _pace(results: Iterable[Mapping[str, Any]]) -> str:
    spent = [r["seconds"].get("reinforcement", 0.0) / r["steps"] for r in results if r.get("steps")]
    return f"{sum(spent) / len(spent):.1f}" if spent else ""


if __name__ == "__main__":
    main()
