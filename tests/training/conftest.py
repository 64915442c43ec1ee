from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentrl.config import Config
from agentrl.policies import tiny_model
from agentrl.policies.models import ModelAdapter, adapter_for
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings


@pytest.fixture(scope="session")
def tiny_vlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"hidden": 32, "layers": 2, "heads": 1, "kv_heads": 1, "intermediate": 64}
    vision = {"vision_hidden": 32, "vision_depth": 1, "vision_heads": 2, "vision_intermediate": 64}
    return tiny_model.build(tmp_path_factory.mktemp("model") / "tiny", 0, **sizes, **vision)


@pytest.fixture(scope="session")
def model_adapter(tiny_vlm: Path) -> ModelAdapter:
    return adapter_for(tiny_vlm)


@pytest.fixture
def config() -> Config:
    config = Config()
    config.optim.lr = 1e-3
    return config


@pytest.fixture
def make_learner(tiny_vlm: Path) -> Iterator[Callable[[Config], Learner]]:
    made: list[Learner] = []

    def make(config: Config) -> Learner:
        made.append(Learner(LearnerSettings.of(config), tiny_vlm))
        return made[-1]

    yield make
    for learner in reversed(made):
        learner.close()
