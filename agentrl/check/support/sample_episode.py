"""A made-up episode like a recorded one, for the checks of reward functions."""

from dataclasses import replace

import numpy as np

from agentrl.types import Episode, Image, Outcome, Turn

_TURNS = 3


def sample_episode(turns: int = _TURNS) -> Episode:
    """Return a finished episode about a question with a picture; reply two is unparsable."""
    played = tuple(_turn(number, turns) for number in range(turns))
    return Episode(
        id="sample",
        env_id="Sample-v0",
        seed=7,
        group="g0",
        member=0,
        reset_info={"round": 0, "ground_truth": "42", "score": 0.0},
        instructions="Answer in <answer> tags.",
        turns=played,
        final_shown="Over.",
        final_frames=(),
        outcome=Outcome.TERMINATED,
        error=None,
        device=None,
    )


def truncated(episode: Episode) -> Episode:
    """Return the episode as if the turn limit had ended it."""
    return replace(episode, outcome=Outcome.TRUNCATED)


def _turn(number: int, turns: int) -> Turn:
    is_last, is_broken = number == turns - 1, number == 1
    reply = "hm" if is_broken else "<think>so</think><answer>42</answer><action>say(42)</action>"
    return Turn(
        prompt_ids=tuple(range(1, 9 + 4 * number)),
        reply_ids=(5, 6, 7),
        reply_logprobs=(-0.1, -1.5, -0.02),
        reply_versions=(3, 3, 3),
        reply=reply,
        images=(_picture(number),),
        shown="<image>What is six times seven?",
        frames=(),
        action=None if is_broken else "42",
        parse_error="no action" if is_broken else None,
        env_reward=float(is_last),
        state_key=f"s{number}",
        info={
            "round": number + 1,
            "ground_truth": "42",
            "success": is_last,
            "score": float(is_last),
            "changed": not is_broken,
            "regret": 0.0,
            "metrics": {"success": float(is_last)},
        },
        timings={"generate": 0.2, "act": 0.01},
    )


def _picture(number: int) -> Image:
    picture = np.full((56, 28, 3), 240, np.uint8)
    picture[number * 8 : number * 8 + 8] = (22, 190, 76)
    return picture
