import json

import pytest

from agentrl import config as configuration
from agentrl.errors import ConfigError
from agentrl.training.supervised import warm_start_marker


def settings(*overrides):
    return configuration.load("number_game", overrides)


def test_marker_names_the_environment_and_the_warm_start(tmp_path):
    assert not warm_start_marker.has_warm_start(settings(), tmp_path)
    warm_start_marker.write_marker(settings(), tmp_path)
    (file,) = tmp_path.iterdir()
    had = {"player": "mediocre", "episodes": 300, "steps": 600}
    assert json.loads(file.read_text()) == {"warm_starts": {"NumberGame-v0": had}}
    assert warm_start_marker.has_warm_start(settings("env.id=agentrl.envs:NumberGame-v0"), tmp_path)
    assert not warm_start_marker.has_warm_start(settings("warm_start.repeat=true"), tmp_path)


def test_job_without_a_warm_start_leaves_no_marker(tmp_path):
    warm_start_marker.write_marker(settings("warm_start=null"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_skipped_warm_start_keeps_the_marker(tmp_path):
    warm_start_marker.write_marker(settings(), tmp_path)
    warm_start_marker.write_marker(settings("warm_start.steps=3"), tmp_path)
    assert '"steps": 600' in (tmp_path / "agentrl.json").read_text()
    warm_start_marker.write_marker(
        settings("warm_start.steps=3", "warm_start.repeat=true"), tmp_path
    )
    assert '"steps": 3' in (tmp_path / "agentrl.json").read_text()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"warm_starts": 3}'])
def test_damaged_marker_is_a_config_error(text, tmp_path):
    (tmp_path / "agentrl.json").write_text(text)
    with pytest.raises(ConfigError, match=r"agentrl\.json: cannot be read"):
        warm_start_marker.has_warm_start(settings(), tmp_path)
