import pytest

from agentrl.config import Config


@pytest.fixture
def config() -> Config:
    config = Config()
    config.optim.lr = 1e-3
    return config
