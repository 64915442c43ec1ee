"""Every numeric setting has bounds: a senseless value is refused with its key, or is none."""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentrl import config as configuration
from agentrl.config import AlgorithmConfig, Config, DataConfig
from agentrl.config.bounds import check_bounds
from agentrl.errors import ConfigError
from agentrl.extension_points import ALGORITHM

SENSELESS = (-1, -0.5, math.nan, math.inf, 10**13, 1e300)
_LARGEST = 10**12
_LONGEST_S = 10**6
"""Socket timers overflow after 24 days."""


def full(algorithm: str = "grpo") -> Config:
    """A valid configuration with every optional section."""
    config = configuration.load("number_game", [f"algorithm={algorithm}"])
    for section in (config, config.algorithm):
        for name, hint in typing.get_type_hints(type(section)).items():
            kind = next((k for k in typing.get_args(hint) if dataclasses.is_dataclass(k)), None)
            if getattr(section, name) is None and kind is not None and name != "reward_audit":
                setattr(section, name, kind())
    for name in ("sft", "dpo", "reward_model"):
        setattr(config, name, replace(getattr(config, name), train=DataConfig(data="rows.jsonl")))
    config.validate()
    return config


def numbers(section: Any, prefix: str = "") -> Iterator[tuple[Any, str, str, Any]]:
    """Each numeric setting: its section, name, key and type."""
    for name, hint in typing.get_type_hints(type(section)).items():
        value = getattr(section, name)
        if dataclasses.is_dataclass(value):
            yield from numbers(value, f"{prefix}{name}.")
        kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if int in kinds or float in kinds:
            yield section, name, f"{prefix}{name}", int if int in kinds else float


def test_a_senseless_number_is_refused_and_the_rest_is_in_bounds():
    seen = set()
    for algorithm in ALGORITHM.extensions():
        config = full(algorithm.name)
        for section, name, key, kind in numbers(config):
            if (type(section), name) not in seen:
                seen.add((type(section), name))
                _check(config, section, name, key, kind)
    assert len(seen) > 120


def test_another_default_keeps_the_bounds_and_an_environment_of_a_mixture_has_them():
    @dataclasses.dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        discount: float = 0.9

    with pytest.raises(ConfigError, match=r"algorithm\.discount=2: must be at most 1"):
        check_bounds(Config(name="mine", discount=2), "algorithm")
    with pytest.raises(ConfigError, match=r"mixture\[0\]\.env\.max_turns=0: must be above 0"):
        configuration.from_dict({"mixture": [{"name": "a", "env": {"max_turns": 0}}]})


def _check(config: Config, section: Any, name: str, key: str, kind: type) -> None:
    before, accepted, refusals = getattr(section, name), [], []
    for value in SENSELESS:
        if kind is int and not isinstance(value, int):
            continue  # OmegaConf refuses it; see below
        setattr(section, name, value)
        try:
            config.validate()
        except ConfigError as error:
            refusals.append(str(error))
        else:
            accepted.append(value)
    setattr(section, name, before)
    assert not any("\n" in refusal for refusal in refusals)
    largest = _LONGEST_S if name.endswith("_s") else _LARGEST
    assert all(abs(value) <= largest for value in accepted), (key, accepted)
    negative = [value for value in accepted if value < 0]
    assert not negative or key in MAY_BE_NEGATIVE, (key, negative)


MAY_BE_NEGATIVE = {
    "sampling.success_at",  # rewards may be negative
    "warm_start.recorded_filter.min_reward",
    "warm_start.recorded_filter.max_reward",
    "eval.first_seed",  # compared with the seeds of training before work starts
}


@functools.cache
def keys() -> list[tuple[str, type]]:
    return [(key, kind) for *_, key, kind in numbers(full())]


@settings(max_examples=12, deadline=None)
@given(number=st.integers(0, 10**6), wrong=st.sampled_from(["x", "[1]", "{a: 1}", "true", "1.5"]))
def test_a_wrong_type_is_refused_with_its_key(number, wrong):
    key, kind = keys()[number % len(keys())]
    assume(kind is not float or wrong != "1.5")
    section = {"sft": "sft.train.data", "dpo": "dpo.train.data"}.get(key.partition(".")[0])
    given = [f"{section or 'reward_model.train.data'}=rows.jsonl", f"{key}={wrong}"]
    with pytest.raises(ConfigError) as caught:
        configuration.load("number_game", given)
    assert key.rpartition(".")[2] in str(caught.value)
    assert "\n" not in str(caught.value)
