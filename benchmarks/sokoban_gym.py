"""Part of benchmarks/sokoban.py that runs without agentrl, in gym-sokoban's virtual environment.

Reads one job as JSON from standard input and writes its result as JSON on the last line.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gym_sokoban.envs import SokobanEnv

CODES = {"#": (0, 0), " ": (1, 1), ".": (2, 2), "$": (1, 4), "*": (2, 3), "@": (1, 5), "+": (2, 5)}
"""Values in gym-sokoban's arrays (room, board) by level character."""
SIGNS = {codes: sign for sign, codes in CODES.items()}


def main() -> None:
    """Run the job."""
    job = json.load(sys.stdin)
    jobs: Mapping[str, Callable[..., Any]] = {"speed": speed, "walks": walks}
    answer = jobs[job.pop("what")](**job)
    print(f"\n{json.dumps(answer)}")


def speed(size: int, boxes: int, picture: str, seconds: float, seed: int) -> Mapping[str, float]:
    """Time whole episodes of random moves, including level generation."""
    random.seed(seed)
    np.random.seed(seed)
    env = SokobanEnv(dim_room=(size, size), num_boxes=boxes, max_steps=120, reset=False)
    steps = episodes = 0
    generating = 0.0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        before = time.perf_counter()
        env.reset(render_mode=picture)
        generating += time.perf_counter() - before
        done = False
        while not done:
            _, _, done, _ = env.step(random.randint(1, 4), observation_mode=picture)
            steps += 1
        episodes += 1
    spent = time.perf_counter() - started
    return {"steps": steps, "episodes": episodes, "seconds": spent, "generating": generating}


def walks(walks: list[dict[str, Any]], max_steps: int) -> list[list[tuple[str, float, bool]]]:
    """Return board, reward and end of episode after each move of walks on given levels."""
    return [_walk(walk["level"], walk["moves"], max_steps) for walk in walks]


def _walk(level: str, moves: list[int], max_steps: int) -> list[tuple[str, float, bool]]:
    codes = np.array([[CODES[sign] for sign in row] for row in level.split("\n")])
    env = SokobanEnv(dim_room=codes.shape[:2], max_steps=max_steps, reset=False)
    env.room_fixed, env.room_state = codes[..., 0].copy(), codes[..., 1].copy()
    env.num_boxes = int((env.room_fixed == 2).sum())
    env.player_position = np.argwhere(env.room_state == 5)[0]
    env.num_env_steps = env.reward_last = env.boxes_on_target = 0
    steps = []
    for move in moves:
        _, reward, done, _ = env.step(move + 1, observation_mode="tiny_rgb_array")
        pairs = zip(env.room_fixed.tolist(), env.room_state.tolist(), strict=True)
        rows = ["".join(SIGNS[cell] for cell in zip(*pair, strict=True)) for pair in pairs]
        steps.append(("\n".join(rows), float(reward), bool(done)))
        if done:
            break
    return steps


if __name__ == "__main__":
    main()
