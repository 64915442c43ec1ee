"""Reward functions for tests."""

import time

import numpy as np


def given(episode):
    return episode.reset_info.get("value", 1.0)


def per_turn(episode, scale=1.0):
    return [scale * t.env_reward for t in episode.turns]


def per_turn_again(episode):
    return per_turn(episode)


def raises(episode):
    raise RuntimeError("bad day")


def hangs(episode):
    time.sleep(2.0)  # longer than the deadline of the test that asks for it


def returns(episode, value):
    return value


NUMBER = 3


def numpy_number(episode):
    return np.float32(2)


def has_names(queries, prompts, labels):
    """Of the chat format in examples/extend/chat_format.py."""
    (prompt,), (query,) = prompts, queries
    is_prompt = prompt.startswith("Be quick.") and prompt.endswith("\n\nUSER: 1 left\nASSISTANT:")
    return {"rewards": [float(is_prompt and query == f"{prompt}<action>up</action><|endoftext|>")]}
