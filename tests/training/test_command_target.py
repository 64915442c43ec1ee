from pathlib import Path

import pytest

from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.training.command_target import named_job, open_target
from agentrl.training.inference.inference_model import open_inference_target


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("runs/lake-1126-101500/config.yaml", "tuned-model/config.json", "mine.yaml"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("frozenlake", r"\(did you mean 'frozen_lake', 'FrozenLake-v1' or .*\?\)$"),
        ("lake-1126", r"did you mean 'runs/lake-1126-101500'\?"),
        ("mine.yam", r"did you mean 'mine.yaml'\?"),
        ("tuned-modle", r"environment\. `agentrl runs` lists runs, and `agentrl envs list"),
        ("FrozenLak-v1", r"no environment 'FrozenLak-v1' .*did you mean 'FrozenLake-v1'\?"),
    ],
)
def test_what_does_not_exist_is_answered_with_close_names_of_each_kind(name, reason) -> None:
    with pytest.raises(ConfigError, match=reason):
        open_target(name)


def test_models_are_suggested_where_they_are_accepted() -> None:
    reason = "model folder or environment .did you mean 'tuned-model'"
    with pytest.raises(ConfigError, match=reason):
        open_target("tuned-modle", may_be_model=True)
    for name, known in (("tuned-modle", "tuned-model"), ("lake-1126", "runs/lake-1126-101500")):
        with pytest.raises(ConfigError, match=f"no such run or model folder.*'{known}'"):
            open_inference_target(name)
    with pytest.raises(ConfigError, match=r"Hugging Face Hub.* or the URL of a server"):
        open_inference_target("nope")


def test_what_exists_is_returned() -> None:
    assert named_job("sokoban") == "sokoban"
    assert named_job("runs/lake-1126-101500") == "runs/lake-1126-101500"
    found = named_job("FrozenLake-v1")
    assert isinstance(found, Config)
    assert found.env.id == "FrozenLake-v1"
