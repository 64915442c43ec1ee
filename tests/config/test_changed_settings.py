from pathlib import Path

import pytest

from agentrl import config as configuration
from agentrl.config import Config, changed_settings

ROOT = Path(__file__).parents[2]
FILES = [*sorted(ROOT.glob("configs/*.yaml")), *sorted(ROOT.glob("examples/*.yaml"))]


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_the_changed_settings_alone_give_the_same_job(file):
    given = ["devices.source=virtual:4"] if "source: ???" in file.read_text() else []
    job = configuration.load(file, given)
    assert configuration.from_dict(changed_settings(job)).to_dict() == job.to_dict()


def test_only_what_differs_from_the_defaults_is_left():
    assert changed_settings(Config()) == {}
    settings = [
        "seed=6", "algorithm=dapo", "algorithm.loss=sapo", "algorithm.epochs=3",
        "rewards=[{function: 'a.py:f', kwargs: {x: 1}}]", "warm_start={player: expert}",
    ]  # fmt: skip
    job = configuration.resolve(Config(), settings)
    assert changed_settings(job) == {
        "seed": 6,
        "algorithm": {"name": "dapo", "epochs": 3, "loss": {"name": "sapo"}},
        "rewards": [{"function": "a.py:f", "kwargs": {"x": 1}}],
        "warm_start": {"player": "expert"},
    }
