import contextlib
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import agentrl
from agentrl.config import EnvConfig
from agentrl.envs.qa.tools import calculate, zoom
from agentrl.rollout.environments.load_translator_and_players import load_player
from agentrl.rollout.environments.resolved_env import resolve_env
from tests.data.rows import picture


@pytest.mark.parametrize(
    ("term", "value"),
    [
        ("17 * 23", "391"), ("-(2 + 3) ** 2", "-25"), ("1/4", "0.25"), ("7 // 2 + 7 % 4", "6"),
        ("2 ** -1", "0.5"), ("0.1 + 0.2", "0.3"), ("10/3", "3.33333333333"), ("+5", "5"),
    ],
)  # fmt: skip
def test_terms_are_calculated_exactly(term, value):
    assert calculate(term) == value


@pytest.mark.parametrize(
    "term",
    [
        "", "two", "1 +", "__import__('os')", "[].__class__", "(lambda: 1)()", "1 if 1 else 2",
        "9 ** 9 ** 9", "9 ** 65", "1e300 * 1e300", "1e999", "1/0", "1 % 0", "0 ** -1", "2 ** 0.5",
        "(" * 150, "1" * 300, "True", "1j", "'a' * 9", "x := 3", "1; 2", "1 @ 2", "f'{1}'",
    ],
)  # fmt: skip
def test_an_invalid_or_too_large_expression_is_a_value_error(term):
    with pytest.raises(ValueError, match=r"expression|supported|large|exponent|zero"):
        calculate(term)


@given(st.text(max_size=60))
def test_any_text_is_a_number_or_a_value_error(text):
    with contextlib.suppress(ValueError):
        Fraction(calculate(text))


@given(st.integers(-999, 999), st.integers(-999, 999), st.sampled_from(["+", "-", "*"]))
def test_whole_numbers_are_calculated_as_python_does(a, b, sign):
    expected = {"+": a + b, "-": a - b, "*": a * b}[sign]
    assert calculate(f"{a} {sign} {b}") == str(expected)


def test_zoom_shows_a_part_enlarged():
    image = picture(height=20, width=40)
    image[:10, 20:] = (0, 0, 255)
    part = zoom(image, (0.5, 0, 1, 0.5), 60)
    assert part.shape == (30, 60, 3)
    assert (part == (0, 0, 255)).all()
    assert zoom(image, (0.99, 0.99, 1, 1), 8).shape == (8, 8, 3)
    for box in ((0.5, 0, 0.5, 1), (0, 0, 1, 1.1), (float("nan"), 0, 1, 1)):
        with pytest.raises(ValueError, match="is not a box"):
            zoom(image, box, 60)


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "examples"))
    yield "ask_with_tools:AskWithTools-v0"
    sys.modules.pop("ask_with_tools", None)


@pytest.mark.parametrize("style", ["tag", "tool"])
def test_example_is_played_with_tools_in_both_styles(example, style):
    env = agentrl.make(example).unwrapped
    words = agentrl.make_translator(example, {"style": style})
    player = load_player(
        resolve_env(EnvConfig(id=example, translator_kwargs={"style": style})), "expert"
    )
    rng, kinds = np.random.default_rng(0), set()
    for seed in range(12):
        observation, info = env.reset(seed=seed)
        kinds.add(info["kind"])
        turns, done = 0, False
        while not done:
            assert words.to_message(words.to_observation(observation, info)).role == "user"
            action = words.to_action(player.reply(info, rng))
            observation, reward, done, _, info = env.step(action)
            turns += 1
        assert (reward, turns) == (1.0, 2)
    assert kinds == {"sum", "color"}


def test_the_example_keeps_the_contract_and_reports_tool_errors(example):
    env = agentrl.make(example).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)
    env.reset(seed=0)
    for tool, argument, words in [(0, "9", "no such box"), (1, "os.exit()", "not supported")]:
        observation, reward, done, _, _ = env.step({"tool": tool, "argument": argument})
        assert (reward, done) == (0.0, False)
        assert words in observation["text"]
