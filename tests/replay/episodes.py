"""Small episodes for tests of the recorder."""

from typing import Any

import numpy as np

from agentrl.types import Episode, Image, Outcome, ScoredEpisode, Turn


def screen(number: int, width: int = 36, height: int = 64) -> Image:
    image = np.full((height, width, 3), (20, 120, 220), np.uint8)
    image[: number % height + 1, : number // height + 1] = (number % 256, 0, 255)
    return image


def turn(
    prompt_ids: tuple[int, ...] = (1, 2), reply_ids: tuple[int, ...] = (3,), **changes: Any
) -> Turn:
    return Turn(
        prompt_ids=prompt_ids,
        reply_ids=reply_ids,
        **{
            "reply_logprobs": (-0.1,) * len(reply_ids), "reply_versions": (7,) * len(reply_ids),
            "reply": "<action>tap(0.25, 0.50)</action>", "images": (), "shown": "<image>Go on.",
            "frames": (),
            "action": [0.25, 0.5], "parse_error": None, "env_reward": 1.0, "state_key": "s",
            "info": {"round": 1}, "timings": {"generate": 0.01},
            **changes,
        },
    )  # fmt: skip


def episode(
    name: str, turns: tuple[Turn, ...] = (), outcome: Outcome = Outcome.TERMINATED, **changes: Any
) -> Episode:
    return Episode(
        id=name,
        outcome=outcome,
        turns=turns,
        **{
            "env_id": "Game-v0", "seed": 3, "group": "g0", "member": 0,
            "reset_info": {"round": 0}, "instructions": "Tap the cards.",
            "final_shown": "Over.", "final_frames": (), "error": None, "device": "127.0.0.1:5600",
            **changes,
        },
    )  # fmt: skip


def scored(name: str, turns: int = 1, **changes: Any) -> ScoredEpisode:
    played = tuple(turn(prompt_ids=(1, 2) + (3, 4) * n) for n in range(turns))
    rewards = tuple(float(n) for n in range(turns))
    return ScoredEpisode(
        episode=episode(name, turns=played, **changes),
        components={"outcome": rewards},
        rewards=rewards,
    )
