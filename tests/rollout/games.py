"""A tiny environment whose failures can be chosen, and a player for it."""

import asyncio
import os
import signal
import sys
import time

import gymnasium
import numpy as np

import agentrl
from agentrl.errors import DeviceOffline, InvalidArgument

INFOS = {
    "no info": None,
    "metrics of words": {"metrics": {"a": "x"}},
    "no metrics": {"metrics": None},
    "metrics that steer": {"metrics": {"\x1b[31mred \ud800": 1.0}},
    "listed key": {"state_key": [1, 2]},
}


class Countdown(gymnasium.Env):
    """Five steps; `fault` says what goes wrong at the third, for seeds divisible by `every`.

    With those seeds, every step takes `pause_s`.
    """

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Text(64, charset="0123456789 left")

    def __init__(self, fault=None, every=1, length=5, said="", phone="phone-1", pause_s=0.0):
        if length < 0:
            raise InvalidArgument("length", length, "at least 0")
        self.fault, self.every, self.length, self.said = fault, every, length, said
        self.phone, self.pause_s = phone, pause_s

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed_given, self.left = seed, self.length
        return self._look()

    def step(self, action):
        self.left -= 1
        if self.pause_s and self.seed_given % self.every == 0:
            time.sleep(self.pause_s)
        if self.left == self.length - 3 and self.seed_given % self.every == 0:
            self._fail()
        observation, info = self._look()
        truncated = self.fault == "truncate" and self.left == 0
        reward = float(action)
        if self.left == 2:
            reward = {"nan reward": float("nan"), "text reward": "1.0"}.get(self.fault, reward)
        return observation, reward, self.left == 0 and not truncated, truncated, info

    def _look(self):
        if self.left == self.length - 3 and self.fault in INFOS:
            return "", INFOS[self.fault]
        info = {"left": np.int64(self.left), "state_key": f"{self.seed_given}/{self.left}"}
        return f"{self.left} left{self.said}", info

    def _fail(self):
        if self.fault == "raise":
            raise RuntimeError("the environment broke")
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "exit":
            sys.exit(0)
        if self.fault == "cancel":
            raise asyncio.CancelledError
        if self.fault == "offline":
            raise DeviceOffline(f"{self.phone} is offline")
        if self.fault == "hang":
            time.sleep(2.0)  # longer than the deadline of the test that uses it


class Player:
    """Presses `up`, and gives an invalid reply when two steps are left."""

    def reply(self, info, rng):
        if info["left"] == 2 and rng.random() < 0.5:
            return "I would rather not"
        return "<action>up</action>"


agentrl.register(
    "Countdown-v0",
    "tests.rollout.games:Countdown",
    players={"player": "tests.rollout.games:Player"},
)
