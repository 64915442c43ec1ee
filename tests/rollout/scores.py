"""Reward functions for tests."""

import asyncio
import ctypes
import logging
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np


def given(episode):
    return episode.reset_info.get("value", 1.0)


def per_turn(episode, scale=1.0):
    return [scale * t.env_reward for t in episode.turns]


def per_turn_again(episode):
    return per_turn(episode)


def raises(episode):
    raise RuntimeError("bad day")


NUMBER = 3


def numpy_number(episode):
    return np.float32(2)


def has_names(queries, prompts, labels):
    """Check for the chat format in examples/extend/chat_format.py."""
    (prompt,), (query,) = prompts, queries
    is_prompt = prompt.startswith("Be quick.") and prompt.endswith("\n\nUSER: 1 left\nASSISTANT:")
    return {"rewards": [float(is_prompt and query == f"{prompt}<action>up</action><|endoftext|>")]}


def behaves(episode):
    """Do what the last reply says."""
    return _behave(episode.turns[-1].reply)


def behave_in_batches(reward_inputs):
    return [{"overall": _behave(one["response"])} for one in reward_inputs]


async def behaves_later(episode):
    reply = episode.turns[-1].reply
    await asyncio.sleep(60.0 if reply == "sleep" else 0.0)
    return _behave(reply)


def _behave(reply):
    match reply:
        case "exit":
            os._exit(3)
        case "crash":
            ctypes.string_at(0)
        case "regex":
            re.match(r"(a+)+$", "a" * 60 + "b")  # never ends, and keeps the GIL
        case "sleep":
            time.sleep(60.0)
        case "print":
            print("printed by a reward")
            logging.getLogger("a_reward").warning("logged by a reward")
        case "torch":
            return float("torch" in sys.modules)
        case "process":
            return float(os.getpid())
        case "start":
            with ThreadPoolExecutor(1) as pool:
                done = pool.submit(subprocess.run, ["echo", "7"], capture_output=True).result()
            return float(done.stdout)
    return 1.0


def reads_fields(episode):
    """Return the sum of the fields, so that each of them must arrive."""
    turn = episode.turns[-1]
    assert turn.prompt_ids == (1,)
    assert turn.prompt_ids + turn.reply_ids == (1, 2, 3)
    brightest = [int(image.max()) for turn in episode.turns for image in turn.images[-1:]]
    return sum(brightest) + int(episode.final_images[0].max()) + sum(turn.reply_logprobs)


class KeepsSomeImages:
    """Compares kept images with copies of their original pixels; the images are read-only."""

    def __init__(self):
        self.kept = []

    def __call__(self, episode):
        image = episode.turns[-1].images[0]
        assert not image.flags.writeable
        if len(episode.turns[-1].reply) % 2:
            self.kept.append((image, int(image[0, 0, 0])))
        return all((image == first).all() for image, first in self.kept)


def waits(episode):
    time.sleep(0.3)
    return float(os.getpid())


def computes(episode):
    """Compute for as many milliseconds as the last reply says."""
    end = time.process_time() + float(episode.turns[-1].reply) / 1000
    while time.process_time() < end:
        pass
    return float(os.getpid())


class Waits:
    def __call__(self, episode):
        return waits(episode)


def raises_sometimes(episode):
    if len(episode.turns) % 3 == 0:
        raise ValueError("no answer")
    return 1.0
