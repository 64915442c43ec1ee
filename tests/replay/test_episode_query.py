"""Queries over episodes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl import cli, replay
from agentrl.errors import ConfigError
from agentrl.replay.episode_query import parse_query
from tests.viewer import runs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return replay.open(runs.run(tmp_path_factory.mktemp("runs") / "game"))


@pytest.fixture(scope="module")
def recorded(run):
    return run.episodes()


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("accuracy < 0.5", lambda one: one.metrics["accuracy"] < 0.5),
        ("reward>=1", lambda one: not one.outcome.void and one.reward >= 1),
        ("label = after-sampled", lambda one: one.label == "after-sampled"),
        ("label = 'after sampled'", lambda one: one.label == "after-sampled"),
        ("seed = 1002 or seed = 1003", lambda one: one.seed in (1002, 1003)),
        ("split=train and not success", lambda one: one.split == "train" and not one.success),
        ("split=train and (step = 1 or void)",
         lambda one: one.split == "train" and (one.step == 1 or one.outcome.void)),
        ("not not success", lambda one: one.success is True),
        ("success = false", lambda one: one.success is False),
        ("cause ~ OFFLINE", lambda one: one.cause == "DeviceOffline"),
        ("cause = none", lambda one: one.cause is None),
        ('error = "DeviceOffline: net-3fa2c1 is gone"', lambda one: one.error is not None),
        ("reward/outcome > 0", lambda one: sum(one.components["outcome"]) > 0),
        ("split=train or split=eval and step=0",
         lambda one: one.split == "train" or one.step == 0),
    ],
)  # fmt: skip
def test_a_query_admits_what_python_does(run, recorded, text, holds):
    found = run.episodes(text)
    assert found == [one for one in recorded if holds(one)]
    assert 0 < len(found) < len(recorded)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a name"),
        ("accuracy <", "expected a value"),
        ("acuracy < 1", "did you mean 'accuracy'"),
        ("accuracy < high", "compares numbers only"),
        ("accuracy < nan", "compares numbers only"),
        ("(step = 1", "not closed"),
        ("step = 1)", "unexpected"),
        ("step = 1 seed = 2", "unexpected"),
        ("step = 1 and", "expected a name"),
        ("'step' = 1", "expected a name"),
        ("step = 'open", "unexpected"),
        ("(" * 999, "more than 50"),
        ("a" * 3000, "2,000 characters"),
    ],
)
def test_a_mistake_is_named(run, text, message):
    with pytest.raises(ConfigError, match=message):
        run.episodes(text)


def test_an_unknown_label_is_refused(run):
    assert run.episodes(replay.Filter(label="after sampled"))
    with pytest.raises(ConfigError, match=r"did you mean 'after-sampled'"):
        run.episodes(replay.Filter(label="after-samplde"))


@given(st.text("ab =<>!~()'\"1.andortep\n", max_size=60))
def test_any_text_is_a_query_or_an_error(text):
    with suppress(ConfigError):
        assert callable(parse_query(text, ()))


def test_the_command_and_the_list_take_queries(tmp_path, capsys):
    run = runs.run(tmp_path / "game")
    assert cli.run(["episodes", str(run), "--where", "label = after-sampled and success"]) == 0
    assert "3 of 3 episodes" in capsys.readouterr().out
    assert cli.run(["episodes", str(run), "--where", "nope > 1"]) == 2
