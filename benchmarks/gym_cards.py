"""Compare NumberLine and EZPoints with gym-cards (python benchmarks/gym_cards.py FOLDER).

FOLDER contains the package `gym_cards`, as the folder `gym-cards` of
https://github.com/RL4VLM/RL4VLM does; it is not on PyPI. Both environments walk from the same
starts with the same actions, comparing pictures, rewards and ends. Pictures of EZPoints are
compared outside the cards, which are drawn differently.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from conditions import conditions
from rich.console import Console
from rich.table import Table

import agentrl
from agentrl.envs.gym_cards.ez_points import SYMBOLS
from agentrl.envs.gym_cards.players import next_part
from agentrl.types import Image

Draw = Callable[[Mapping[str, Any]], int]


def main() -> None:
    """Compare both environments, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--walks", type=int, default=1000)
    options = parser.parse_args()
    print(conditions("gymnasium", "numpy", "pillow"), "\n")
    Console(width=110).print(compare(options.folder, options.walks))


def compare(folder: Path, walks: int) -> Table:
    """Walk in both packages' environments; return the table of differences.

    Args:
        folder: contains the package `gym_cards`.
        walks: episodes of each environment.
    """
    sys.path.insert(0, str(folder))
    # Its fonts are looked up in the system's folders, to which this adds matplotlib's.
    spec = find_spec("matplotlib")
    assert spec is not None, "install matplotlib"
    os.environ["XDG_DATA_HOME"] = str(Path(str(spec.origin)).parent / "mpl-data")
    from gym_cards.envs import EZPointEnv, NumberLineEnv

    rng = np.random.default_rng(0)
    table = Table("environment", "walks", "steps", "solved", "pictures differ", "rewards differ",
                  "ends differ")  # fmt: skip

    def draw_move(info: Mapping[str, Any]) -> int:
        return int(rng.integers(2))

    def draw_part(info: Mapping[str, Any]) -> int:
        if rng.random() < 0.4:
            return int(rng.integers(len(SYMBOLS)))
        return SYMBOLS.index(next_part(tuple(info["numbers"]), tuple(info["formula"])))

    def numbers(info: Mapping[str, Any]) -> dict[str, Any]:
        return {"current": info["Current"], "target": info["Target"]}

    def cards(info: Mapping[str, Any]) -> dict[str, Any]:
        return {"cards": info["Cards"]}

    for name, theirs, start, draw in (
        ("NumberLine-v0", NumberLineEnv(), numbers, draw_move),
        ("EZPoints-v0", EZPointEnv(), cards, draw_part),
    ):
        found = _walk(name, theirs, start, draw, walks)
        row = ("steps", "solved", "pictures", "rewards", "ends")
        table.add_row(name, f"{walks:,}", *(f"{found[key]:,}" for key in row))
    return table


def _walk(
    name: str, theirs: Any, start: Callable[[Mapping[str, Any]], dict[str, Any]], draw: Draw,
    walks: int,
) -> Counter[str]:  # fmt: skip
    """Count the steps, the solved episodes and the differences."""
    ours, found = agentrl.make(name), Counter[str]()
    for walk in range(walks):
        picture, info = theirs.reset()
        seen, facts = ours.reset(seed=walk, options=start(info))
        over = False
        found["pictures"] += _differ(name, picture, seen)
        while not over:
            action = draw(facts)
            picture, *theirs_after, _ = theirs.step(action)
            seen, *ours_after, facts = ours.step(action)
            found["steps"] += 1
            found["pictures"] += _differ(name, picture, seen)
            found["rewards"] += theirs_after[0] != ours_after[0]
            found["ends"] += theirs_after[1:] != ours_after[1:]
            over = any(theirs_after[1:])
        found["solved"] += int(facts["metrics"]["success"])
    return found


def _differ(name: str, theirs: Image, ours: Image) -> bool:
    if name.startswith("EZPoints"):
        theirs, ours = theirs.copy(), ours.copy()
        for picture in (theirs, ours):
            picture[55:244, 5:140] = picture[55:244, 153:288] = 0  # the cards
    return not np.array_equal(theirs, ours)


if __name__ == "__main__":
    main()
