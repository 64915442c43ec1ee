import ctypes
import os
import time

import gymnasium
import numpy as np
import pytest

import agentrl
from agentrl.check.environments import check_environment
from agentrl.check.environments.checks import check_replies, is_action
from agentrl.check.runner import findings_in_process
from agentrl.check.support.random_episodes import play_randomly
from agentrl.config import EnvConfig
from agentrl.errors import ActionError
from agentrl.types import Message, Observation

SHAPE = (32, 32, 3)


class Sick(gymnasium.Env):
    """Has one fault at a time, or none."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0, 255, SHAPE, np.uint8)
    made = 0

    def __init__(self, fault=None):
        self.fault = fault
        Sick.made += 1
        self.number = Sick.made
        if fault == "construction":
            raise RuntimeError("no such level")

    def _look(self):
        shade = int(self.np_random.integers(256))
        if self.fault == "chance":
            shade = int(np.random.default_rng().integers(256))
        if self.fault == "shared":
            shade = self.number % 256
        screen = np.full(SHAPE, shade, np.uint8)
        info = {"state_key": str(self.steps)}
        if self.fault == "time":
            info["at"] = time.perf_counter()
        if self.fault == "no json":
            info["self"] = self
        return (screen.astype(np.float64) if self.fault == "floats" else screen), info

    def reset(self, *, seed=None, options=None):
        if self.fault == "reset" and getattr(self, "steps", 0):
            raise RuntimeError("not again")
        if self.fault == "hang":
            time.sleep(3)
        if self.fault == "end":
            os._exit(0)
        if self.fault == "lock":
            ctypes.PyDLL(None).sleep(60)  # unlike `time.sleep`, it keeps Python's lock
        super().reset(seed=None if self.fault == "deaf" else seed)
        self.steps = 0
        return self._look()

    def step(self, action):
        self.steps += 1
        reward = float("nan") if self.fault == "nan" else float(action)
        return (*self._look()[:1], reward, self.steps == 3, False, self._look()[1])


class Words:
    """Takes anything for an action."""

    def __init__(self, crash=False):
        self._crash = crash

    def instructions(self):
        return "Play."

    def to_observation(self, observation, info):
        return agentrl.types.Observation(images=(observation,))

    def to_action(self, reply):
        if self._crash:
            return {"up": 1}[reply]
        return len(reply)

    def no_action(self):
        return None


class Mumbler:
    def reply(self, info, rng):
        return "hm"


NAME = f"{__name__}:Sick"
agentrl.register("SickWords-v0", NAME, translator=f"{__name__}:Words")
agentrl.register("SickPlayer-v0", NAME, players={"mumbler": f"{__name__}:Mumbler"})


def wrong_with(config, what, deadline_s=60.0):
    """What is found wrong with one thing; what comes after it is not looked at."""
    found = next(f for f in check_environment(config, 10, deadline_s) if f.what == what)
    assert found.state == "wrong", found
    return found.detail


@pytest.mark.parametrize(
    ("kwargs", "detail", "fix"),
    [
        (
            {"map_nmae": "8x8"},
            "env.kwargs.map_nmae: FrozenLake-v1 does not accept this argument",
            "correct what",
        ),
        ({"map_name": "9x9"}, "with env.kwargs={'map_name': '9x9'}: KeyError: ", "env.kwargs"),
    ],
)
def test_a_rejected_argument_is_not_blamed_on_the_code(kwargs, detail, fix) -> None:
    (found,) = check_environment(EnvConfig(id="FrozenLake-v1", kwargs=kwargs))
    assert (found.state, found.what) == ("wrong", "construction")
    assert found.detail.startswith(detail)
    assert "map_name" in found.detail + found.fix
    assert "is_slippery" in found.detail + found.fix
    assert fix in found.fix


def test_a_valid_environment_passes() -> None:
    found = {f.what: f for f in check_environment(EnvConfig(id=NAME), steps=10)}
    assert {f.state for f in found.values()} == {"ok"}, found
    assert "32x32" in found["shown to the model"].detail
    assert found["another process"].detail == "gives the same episode"


@pytest.mark.parametrize(
    ("fault", "where", "message"),
    [
        ("construction", "construction", "no such level"),
        ("chance", "seeds", "differ in the observation at step 0"),
        ("deaf", "seeds", "differ"),
        ("floats", "gymnasium's checker", "not within the observation space"),
        ("no json", "info", "JSON cannot express"),
        ("reset", "reset after episode", "not again"),
        ("nan", "reset after episode", "reward nan at step 1"),
        ("shared", "two instances", "differ from one alone"),
    ],
)
def test_each_fault_is_found(fault: str, where: str, message: str) -> None:
    assert message in wrong_with(EnvConfig(id=NAME, kwargs={"fault": fault}), where)


def test_a_shared_action_space_is_not_modified() -> None:
    """Two threads that drew from it would take each other's actions."""
    Sick.action_space.seed(3)
    expected = [Sick.action_space.sample() for _ in range(30)]
    Sick.action_space.seed(3)
    play_randomly(EnvConfig(id=NAME), 10)
    assert [Sick.action_space.sample() for _ in range(30)] == expected


def test_timings_in_info_are_noted() -> None:
    config = EnvConfig(id=NAME, kwargs={"fault": "time"})
    found = next(f for f in check_environment(config, 10) if f.what == "info")
    assert (found.state, found.detail) == ("note", "'at' differs at step 0")


def test_an_environment_that_hangs_is_reported_in_time() -> None:
    started = time.monotonic()
    config = EnvConfig(id=NAME, kwargs={"fault": "hang"})
    assert wrong_with(config, "reset and close", deadline_s=0.2) == "not finished within 0.2 s"
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("end", "its process ended with exit code 0"),
        pytest.param("lock", "no other thread could run", marks=pytest.mark.slow),
    ],
)
def test_an_environment_that_ends_its_process_is_reported(fault, message, monkeypatch) -> None:
    monkeypatch.setattr("agentrl.check.runner._START_S", 12.0)
    config = EnvConfig(id=NAME, kwargs={"fault": fault})
    begun: list[str] = []
    made, last = findings_in_process(
        check_environment, (config, 10, 8.0), 8.0, lambda what, seconds: begun.append(what)
    )
    assert made.state == "ok"
    assert (last.what, last.state) == ("reset and close", "wrong")
    assert {"loading", "reset and close"} <= set(begun)
    assert message in last.detail


def test_checks_in_another_process_find_the_same() -> None:
    config = EnvConfig(id=NAME, kwargs={"fault": "construction"})
    isolated = findings_in_process(check_environment, (config, 10), 120.0)
    assert [*isolated] == [*check_environment(config, 10)]


def test_a_translator_that_accepts_invalid_replies_is_reported() -> None:
    id = f"{__name__}:SickWords-v0"
    assert "became" in wrong_with(EnvConfig(id=id), "replies")
    crash = EnvConfig(id=id, translator_kwargs={"crash": True})
    assert "KeyError" in wrong_with(crash, "replies")


def test_a_player_with_invalid_replies_is_reported() -> None:
    config = EnvConfig(id=f"{__name__}:SickPlayer-v0")
    assert "replied 'hm'" in wrong_with(config, "player mumbler")


class Touched(gymnasium.Env):
    """Takes any touch, and ends."""

    action_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    observation_space = gymnasium.spaces.Box(0, 255, SHAPE, np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(255, size=SHAPE, dtype=np.uint8), {"state_key": "start"}

    def step(self, action):
        return np.zeros(SHAPE, np.uint8), 0.0, True, False, {"state_key": "end"}


class TupleWords:
    """Reads a touch as a tuple."""

    def instructions(self):
        return "Touch."

    def to_observation(self, observation, info):
        return Observation(images=(observation,))

    def to_message(self, observation):
        return Message(role="user", text="<image>", images=observation.images)

    def to_action(self, reply):
        if not reply.endswith("</action>"):
            raise ActionError("no touch")
        return 0.25, 0.75

    def no_action(self):
        return None


def test_an_action_that_should_be_an_array_is_a_note_and_no_warning():
    config = EnvConfig(
        id="tests.check.test_environments:Touched",
        translator_class="tests.check.test_environments:TupleWords",
    )
    found = check_replies(config)
    assert (found.state, found.fix) == ("note", "return np.array(..., np.float32)")
    assert "to_action returned (0.25, 0.75), a tuple" in found.detail
    assert not is_action(Touched.action_space, (0.25, 2.0))
    assert not is_action(Touched.action_space, ["a", "b"])
