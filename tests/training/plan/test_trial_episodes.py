"""Lengths of prompts and replies, checked before a job starts."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentrl import config as configuration
from agentrl.errors import ConfigError
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.training.plan.trial_episodes import LengthReport, check_lengths


def job(*overrides: str) -> configuration.Config:
    room = ["rollout.max_context=2000", "rollout.max_new_tokens=400"]
    few = "warm_start.episodes=5"
    return configuration.load("counting", ["rollout.launcher=local", few, *room, *overrides])


def lengths(config: configuration.Config, *recorded: Any) -> LengthReport:
    return check_lengths(plan_rollouts(config), config.warm_start, recorded)


@pytest.fixture
def model(tiny_vlm: Path, tmp_path: Path) -> Path:
    """A local model of which only the weights are missing."""
    return shutil.copytree(
        tiny_vlm, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors")
    )


def test_lengths_are_measured_without_weights(model: Path) -> None:
    report = lengths(job(f"model.path={model}"))
    assert report.measured["chat template"] == "prompts are those of the model's own template"
    assert "tokens in 5 episodes of the player" in report.measured["longest prompt"]
    assert report.measured["longest reply"].endswith("rollout.max_new_tokens=400")
    assert report.unchecked == []


def test_a_demonstration_longer_than_a_reply_is_an_error(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_new_tokens=5 is too low; the warm start trains on"):
        lengths(job(f"model.path={model}", "rollout.max_new_tokens=5"))


def test_a_player_that_answers_at_greater_length_is_only_a_warning_without_demonstrations(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lengths(job(f"model.path={model}", "rollout.max_new_tokens=5", "warm_start=null"))
    assert "so the model cannot give the same replies" in caplog.text


def test_a_first_prompt_without_room_for_a_reply_is_an_error(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_context has no room .*first prompt has \d+ tokens"):
        lengths(job(f"model.path={model}", "rollout.max_context=401"))


def test_a_stop_string_of_several_tokens_is_an_error(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"rollout.stop='two words': must be a single token"):
        lengths(job(f"model.path={model}", "rollout.stop=['.', 'two words']"))


def test_recorded_replies_are_measured_unless_they_are_only_context(model: Path) -> None:
    kinds = [(None, None), ("no action", None), (None, "expert")]
    turns = [SimpleNamespace(parse_error=error, guide=guide) for error, guide in kinds]
    recorded: Any = SimpleNamespace(
        episode=SimpleNamespace(turns=turns), replies=("<answer>4</answer>", "x" * 500, "x" * 500)
    )
    settings = [f"model.path={model}", "warm_start.player=null", "warm_start.recorded=[x]"]
    report = lengths(job(*settings), recorded)
    assert "longest recorded reply" in report.measured
    with pytest.raises(ConfigError, match="the warm start trains on '<answer>4</answer>'"):
        lengths(job(*settings, "rollout.max_new_tokens=3"), recorded)


def test_an_unusable_template_is_an_error_and_only_a_warning_if_a_format_is_named(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    derived = job(f"model.path={model}", "warm_start.episodes=1")
    settings = job(f"model.path={model}", "warm_start.episodes=1", "model.chat=chatml")
    template = model / "chat_template.jinja"
    template.write_text("{{ messages[0].content }}")
    with pytest.raises(ConfigError, match="cannot be split into turns: a message or a reply"):
        lengths(derived)
    report = lengths(settings)
    assert "differ from those of the model's own template" in report.measured["chat template"]
    assert "Play the game" in caplog.text
    template.write_text("{{ raise_exception('no system role') }}")
    with pytest.raises(ConfigError, match=r"cannot be split into turns: .*no system role"):
        lengths(derived)
    report = lengths(settings)
    assert report.measured["chat template"].endswith("the model's own template fails")
    assert "no system role" in caplog.text
    (model / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        lengths(settings)


def test_what_cannot_be_checked_is_named(model: Path) -> None:
    (what,) = lengths(job("model.path=someone/model")).unchecked
    assert what.endswith("model.path=someone/model is not local")
    phone = ["rollout.launcher=local", f"model.path={model}", "devices.source=R58M"]
    (what,) = lengths(configuration.load("number_game", phone)).unchecked
    assert what == "length of prompts and replies: NumberGame-v0 needs a phone"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return 1 / 0", r"cannot be scored: reward mine: ZeroDivisionError: division by zero"),
        (
            "return '1'",
            r"cannot be scored: reward mine: TypeError: a value is '1' \(str\), not a number",
        ),
        (
            "import time; time.sleep(30)",
            r"no result within rollout\.reward_deadline_s=0\.5 s",
        ),
    ],
)
def test_a_reward_that_fails_is_reported_before_the_job(
    model: Path, tmp_path: Path, body: str, reason: str
) -> None:
    name = f"reward_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(f"def mine(episode):\n    {body}\n")
    rewards = f"rewards=[{{function: '{tmp_path}/{name}.py:mine'}}]"
    with pytest.raises(ConfigError, match=reason):
        lengths(job(f"model.path={model}", rewards, "rollout.reward_deadline_s=0.5"))


def test_a_reward_server_is_not_called_before_the_job(model: Path) -> None:
    remote = "{function: remote.Remote, kwargs: {url: 'http://127.0.0.1:9'}}"
    report = lengths(job(f"model.path={model}", f"rewards=[{remote}]"))
    assert "whether the reward server scores an episode" in report.unchecked


@pytest.mark.adb
def test_a_phone_game_is_played_on_virtual_phones(adb_server: object, model: Path) -> None:
    settings = ["rollout.launcher=local", f"model.path={model}", "warm_start.episodes=2"]
    report = lengths(configuration.load("number_game", settings))
    assert "tokens in 2 episodes of the player" in report.measured["longest reply"]
