"""Compare our Sokoban with gym-sokoban from PyPI (python benchmarks/sokoban.py).

Measures steps per second of random moves, including level generation, alternating between the two,
each in a separate process. Ours proves that each level is solvable and finds the length of its
shortest solution; gym-sokoban does not. Then both walk at random on the same levels, comparing the
board, the reward and the end of the episode.

gym-sokoban needs packages that conflict with agentrl's, so they are installed into a temporary
virtual environment (`--venv DIR` keeps and reuses it).
"""

import argparse
import json
import random
import subprocess
import sys
import time
import venv
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from conditions import conditions
from rich.console import Console
from rich.table import Table

import agentrl
from agentrl.envs.sokoban.level_generator import LevelKind, generate

# gym 0.26 is the last release; gym-sokoban needs pkg_resources, which setuptools 82 removed.
PACKAGES = ("gym-sokoban==0.0.6", "gym==0.26.2", "setuptools<81")
CASES = ((5, 1), (7, 1), (7, 2), (10, 4))
"""Board sizes including walls, and numbers of boxes; the last is the usual size."""
PICTURES = {"rgb_array": "16 pixels a cell", "tiny_rgb_array": "1 pixel; ours text"}
"""Render modes of gym-sokoban's `step`, and their names in the table."""
THEIRS = Path(__file__).with_name("sokoban_gym.py")


def main() -> None:
    """Measure, compare, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds per measurement")
    parser.add_argument("--walks", type=int, default=200)
    parser.add_argument("--venv", type=Path)
    parser.add_argument("--ours", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        print(json.dumps(speed(**json.loads(options.ours))))
        return
    with ExitStack() as stack:
        folder = options.venv or Path(stack.enter_context(TemporaryDirectory(prefix="sokoban-")))
        python = install(folder)
        print(conditions("gymnasium", "numpy"), "\nagainst: ", ", ".join(PACKAGES[:2]), "\n")
        Console(width=110).print(speeds(python, options.seconds))
        Console(width=110).print(rules(python, options.walks))


def install(folder: Path) -> Path:
    """Install gym-sokoban into a virtual environment and return its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES]
        subprocess.run([python, *pip], check=True)
    return python


def speeds(python: Path, seconds: float) -> Table:
    """Measure all cases, one row per case."""
    table = Table(
        "size", "boxes", "a cell", "theirs, steps/s", "ours", "times", "theirs, ms a level", "ours",
    )  # fmt: skip
    for picture, shown in PICTURES.items():
        for size, boxes in CASES:
            job = {"size": size, "boxes": boxes, "picture": picture, "seconds": seconds, "seed": 0}
            theirs = ask(python, {"what": "speed", **job})
            ours = json.loads(
                subprocess.run(
                    [sys.executable, __file__, "--ours", json.dumps(job)],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
            rates = [side["steps"] / side["seconds"] for side in (theirs, ours)]
            levels = [1000 * side["generating"] / side["episodes"] for side in (theirs, ours)]
            table.add_row(
                str(size), str(boxes), shown, *(f"{rate:,.0f}" for rate in rates),
                f"{rates[1] / rates[0]:.1f}", *(f"{level:.2f}" for level in levels),
            )  # fmt: skip
    return table


def ask(python: Path, job: Mapping[str, Any]) -> Any:
    """Run a job with gym-sokoban in its virtual environment."""
    done = subprocess.run(
        [python, "-W", "ignore", THEIRS],
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # deprecation warnings
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])  # earlier lines report failed levels


def speed(size: int, boxes: int, picture: str, seconds: float, seed: int) -> Mapping[str, float]:
    """Time whole episodes of random moves in our Sokoban, including level generation."""
    observation = "image" if picture == "rgb_array" else "text"
    env = agentrl.make(
        "Sokoban-v0", size=size, boxes=boxes, observation=observation, cell=16,
        disable_env_checker=True,
    )  # fmt: skip
    rng = random.Random(seed)
    steps = episodes = 0
    generating = 0.0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        before = time.perf_counter()
        env.reset(seed=episodes)
        generating += time.perf_counter() - before
        over = truncated = False
        while not (over or truncated):
            _, _, over, truncated, _ = env.step(rng.randrange(4))
            steps += 1
        episodes += 1
    spent = time.perf_counter() - started
    return {"steps": steps, "episodes": episodes, "seconds": spent, "generating": generating}


def rules(python: Path, count: int, max_steps: int = 120) -> Table:
    """Compare random walks of both on the same levels, step by step."""
    rng = random.Random(0)
    walks = []
    for seed in range(count):
        size, boxes = CASES[seed % len(CASES)]
        level = generate(seed, LevelKind(height=size, width=size, boxes=boxes)).board.text()
        walks.append((level, [rng.randrange(4) for _ in range(max_steps)]))
    asked = [{"level": level, "moves": moves} for level, moves in walks]
    theirs = ask(python, {"what": "walks", "walks": asked, "max_steps": max_steps})
    ours = [_walk(level, moves, max_steps) for level, moves in walks]
    pairs = [
        (their, our)
        for walk in zip(theirs, ours, strict=True)
        for their, our in zip(*walk, strict=True)
    ]
    table = Table("walks", "steps", "solved", "boards differ", "rewards differ", "ends differ")
    table.add_row(
        str(count),
        f"{len(pairs):,}",
        str(sum("$" not in walk[-1][0] for walk in ours)),
        str(sum(their[0] != our[0] for their, our in pairs)),
        str(sum(abs(their[1] - our[1]) > 1e-9 for their, our in pairs)),
        str(sum(their[2] != our[2] for their, our in pairs)),
    )
    return table


def _walk(level: str, moves: list[int], max_steps: int) -> list[tuple[str, float, bool]]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "level.txt"
        file.write_text(level)
        env = agentrl.make("Sokoban-v0", levels=str(file), max_steps=max_steps, solver_states=0)
        env.reset(seed=0)
    steps = []
    for move in moves:
        text, reward, over, truncated, _ = env.step(move)
        steps.append((text, float(reward), over or truncated))
        if steps[-1][2]:
            break
    return steps


if __name__ == "__main__":
    main()
