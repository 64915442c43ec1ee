import json

import pytest

from agentrl import config as configuration
from agentrl.errors import ConfigError
from agentrl.training.supervised import warm_start_marker


def has_warm_start(folder, *overrides):
    config = configuration.load("number_game", overrides)
    return warm_start_marker.has_warm_start(folder, config.warm_start, config.env.id)


def write_marker(folder, *overrides):
    config = configuration.load("number_game", overrides)
    warm_start_marker.write_marker(folder, config.warm_start, config.env.id)


def test_marker_names_the_environment_and_the_warm_start(tmp_path):
    assert not has_warm_start(tmp_path)
    write_marker(tmp_path)
    (file,) = tmp_path.iterdir()
    had = {"player": "mediocre", "episodes": 300, "steps": 600}
    assert json.loads(file.read_text()) == {"warm_starts": {"NumberGame-v0": had}}
    assert has_warm_start(tmp_path, "env.id=agentrl.envs:NumberGame-v0")
    assert not has_warm_start(tmp_path, "warm_start.repeat=true")


def test_skipped_warm_start_keeps_the_marker(tmp_path):
    write_marker(tmp_path)
    write_marker(tmp_path, "warm_start.steps=3")
    assert '"steps": 600' in (tmp_path / "agentrl.json").read_text()
    write_marker(tmp_path, "warm_start.steps=3", "warm_start.repeat=true")
    assert '"steps": 3' in (tmp_path / "agentrl.json").read_text()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"warm_starts": 3}'])
def test_damaged_marker_is_a_config_error(text, tmp_path):
    (tmp_path / "agentrl.json").write_text(text)
    with pytest.raises(ConfigError, match=r"agentrl\.json: cannot be read"):
        has_warm_start(tmp_path)
