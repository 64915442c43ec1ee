"""An environment with a selectable fault."""

import ctypes
import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path

import gymnasium
import numpy as np

import agentrl
from agentrl.errors import EnvError


class Foreign:
    """Something that no observation may contain."""


SEEN = {
    "none": lambda turn: None,
    "nan": lambda turn: np.full(2, np.nan, np.float32),
    "object": lambda turn: Foreign(),
    "objects": lambda turn: np.array([Foreign(), Foreign()]),
    "bytes": lambda turn: b"12",
    "oversized": lambda turn: np.zeros((300, 300), np.float32),
    "growing": lambda turn: np.zeros(2 * 40**turn, np.float32),
    "outside": lambda turn: np.full(2, 7.0, np.float32),
    "endless text": lambda turn: "x" * 3_000_000,
}
"""By fault, what is observed from the second step on, depending on the turn."""


class Mute(Exception):
    """An exception whose `__str__` fails."""

    def __str__(self):
        raise RuntimeError("no text")


ERRORS = {
    "mute": Mute(),
    "endless error": ValueError("x" * 50_000_000),
    "endless own error": EnvError("x" * 50_000_000),
    "generator exit": GeneratorExit("over"),
    "interrupt": KeyboardInterrupt("window closed"),
}
"""By fault, what the second step raises."""


class Misbehaving(gymnasium.Env):
    """Five steps; `fault` happens at the second, for seeds divisible by `every`.

    Args:
        fault: what goes wrong.
        every: which seeds it concerns.
        folder: where to write a file for each created or closed environment, and for each process.
        seconds: how long something takes.
        megabytes: how much a reset keeps.
    """

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    played = 0

    def __init__(self, fault="", every=1, folder="", seconds=60.0, megabytes=2):
        self.fault, self.every, self.megabytes = fault, every, megabytes
        self.folder, self.seconds, self.name = Path(folder), seconds, uuid.uuid4().hex
        self._note("opened")
        if fault == "changes folder":
            os.chdir("/")
        if fault == "changes umask":
            os.umask(0o007)
        if fault == "leaves a process":
            code = "import os, time; os.setsid(); time.sleep(600)"
            # Not with fork(), which may crash in threads of libraries that other tests load.
            child = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
            (self.folder / f"{child}.child").touch()

    def _note(self, what):
        if self.folder != Path():
            (self.folder / f"{self.name}.{what}").touch()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn, self.is_bad = 0, seed is not None and seed % self.every == 0
        if self.fault == "leaks":
            self.kept = [*getattr(self, "kept", []), np.ones((self.megabytes, 125_000))]
        if self.is_bad and self.fault == "sleeps in reset":
            time.sleep(self.seconds)
        if self.fault == "slow":
            time.sleep(self.seconds)
        Misbehaving.played += 1
        if self.fault == "grows" and Misbehaving.played > 3:
            return np.zeros(1000 * Misbehaving.played, np.float32), {}
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.turn += 1
        seen, info = np.zeros(2, np.float32), {}
        if self.fault == "slow":
            time.sleep(self.seconds)
        if self.is_bad and self.turn >= 2:
            self._fail()
            seen = SEEN[self.fault](self.turn) if self.fault in SEEN else seen
        if self.fault == "timings":
            info = {"timings": {"step": time.perf_counter()}}
        ends = "False" if self.is_bad and self.fault == "text ends" else self.turn == 5
        return seen, 1.0, ends, False, info

    def _fail(self):
        if self.fault == "raises":
            raise RuntimeError("broken")
        if self.fault == "exits":
            os._exit(3)
        if self.fault == "segfaults":
            ctypes.string_at(0)
        if self.fault == "kills itself":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "system exit":
            sys.exit(4)
        if self.fault in ERRORS:
            raise ERRORS[self.fault]
        if self.fault == "closes streams":
            os.closerange(0, 3)

    def close(self):
        if self.fault == "hanging close" and hasattr(self, "turn"):
            time.sleep(self.seconds)
        if self.fault == "closes streams at the end":
            os.closerange(0, 3)
        if self.fault == "never closes":
            time.sleep(self.seconds)
        if self.fault == "failing close":
            sys.exit("not closed")
        self._note("closed")


class BoundToItsThread(Misbehaving):
    """Like Playwright, whose single instance per process works only in the thread that started it.

    It also has the metadata and a text space as in BrowserGym.
    """

    metadata = {"render_modes": None}  # noqa: RUF012
    owner = None

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.action_space = Words()

    def _check_thread(self):
        BoundToItsThread.owner = BoundToItsThread.owner or threading.current_thread()
        if BoundToItsThread.owner is not threading.current_thread():
            raise RuntimeError("cannot switch to a different thread")

    def reset(self, **kwargs):
        self._check_thread()
        return super().reset(**kwargs)

    def step(self, action):
        self._check_thread()
        return super().step(action)

    def close(self):
        self._check_thread()
        super().close()


class Words(gymnasium.Space):
    """A space of all strings, which cannot be sampled."""

    def contains(self, x):
        return isinstance(x, str)

    def __eq__(self, other):
        return isinstance(other, Words)


class OldGym(gymnasium.Env):
    """The interface that environments had before Gymnasium."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, seeded=True):
        if not seeded:
            self.reset = self._reset_without_seed

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32)

    def _reset_without_seed(self):
        return np.zeros(2, np.float32)

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, True, {}


class _GymEnv:
    __module__ = "gym.core"


class Ancient(_GymEnv):
    """A subclass of the old gym package's class; the package is not installed."""

    def reset(self):
        return np.zeros(2, np.float32)


class MiniwobClicks(gymnasium.Wrapper):
    """Clicks on MiniWoB's `click-test`, which is observed as a screenshot."""

    def __init__(self, fault=""):
        import miniwob  # registers its environments

        assert miniwob.__version__
        made = gymnasium.make("miniwob/click-test-v1", disable_env_checker=True)
        super().__init__(made.unwrapped)
        self.fault = fault
        self.observation_space = made.observation_space["screenshot"]
        self.action_space = gymnasium.spaces.MultiDiscrete([160, 210])

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed)[0]["screenshot"], {}

    def step(self, action):
        from miniwob.action import ActionTypes

        where = np.array(action, np.float32)
        click = self.env.create_action(ActionTypes.CLICK_COORDS, coords=where)
        observation, reward, terminated, truncated, _ = self.env.step(click)
        return observation["screenshot"], reward, terminated, truncated, {}

    def close(self):
        if self.fault == "hanging close":
            time.sleep(60)
        self.env.close()


class BreaksIt(gymnasium.Wrapper):
    """A wrapper whose observations are not in its declared space."""

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        return observation + 9, info


agentrl.register("Misbehaving-v0", f"{__name__}:Misbehaving")
