import os
import signal
import time

import pytest
import ray
import torch
from safetensors.torch import load_file

from agentrl.cluster import ray_cluster
from agentrl.config import Config
from agentrl.errors import ConfigError, LearnerLost
from agentrl.rollout.nodes.job_files import JobFiles
from agentrl.rollout.workers.open_rollouts import reserve
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_group import open_learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.parallel import sharded_checkpoint
from tests.training.samples import sample

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two_ranks(tiny_vlm):
    config = settings()
    config.rollout.launcher = "ray"
    config.train.ranks = 2
    reservation = reserve(config.rollout, config.train)
    files = JobFiles(config, reservation)
    group = open_learner(LearnerSettings.of(config), tiny_vlm, reservation, files)
    yield group
    group.close()
    ray_cluster.leave_cluster()


def settings():
    config = Config()
    config.optim.lr = 1e-3
    config.algorithm.epochs, config.algorithm.minibatch = 2, 3
    config.train.micro_batch_tokens = 110
    return config


def samples_of_different_lengths(model_adapter):
    # texts of different lengths and numbers of images: the ranks' parts are uneven
    return [sample(model_adapter, k, reply=3 + k, pictures=k % 3) for k in range(7)]


def test_two_ranks_equal_one(two_ranks, tiny_vlm, model_adapter, tmp_path):
    items = samples_of_different_lengths(model_adapter)
    alone = Learner(LearnerSettings.of(settings()), tiny_vlm)
    try:
        for _ in range(3):
            expected, found = alone.update(items), two_ranks.update(items)
            del expected["seconds"], found["seconds"]
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
        two_ranks.save_weights(tmp_path / "two.safetensors")
        weights, own = load_file(tmp_path / "two.safetensors"), alone.weights()
        for name, tensor in own.items():
            torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=1e-4)
        # what two ranks saved, one rank continues
        two_ranks.save_state(tmp_path / "two")
        alone.restore(tmp_path / "two")
        expected, found = alone.update(items), two_ranks.update(items)
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
        assert found["version"] == expected["version"] == 4
        # and what one saved, two continue
        alone.save_state(tmp_path / "one")
        two_ranks.restore(tmp_path / "one")
        expected, found = alone.update(items), two_ranks.update(items)
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    finally:
        alone.close()


def test_two_ranks_train_on_while_their_state_is_written(two_ranks, model_adapter, tmp_path):
    items = samples_of_different_lengths(model_adapter)
    two_ranks.save_state(tmp_path / "now")
    two_ranks.begin_save_state(tmp_path / "background")
    two_ranks.update(items)
    deadline = time.monotonic() + 60
    while not two_ranks.is_state_saved():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    now, background = (sharded_checkpoint.read(tmp_path / n, "") for n in ("now", "background"))
    assert now.keys() == background.keys()
    assert all(torch.equal(now[name], background[name]) for name in now)
    two_ranks.save_state(tmp_path / "later")
    later = sharded_checkpoint.read(tmp_path / "later", "")
    assert any(not torch.equal(now[name], later[name]) for name in now)


def test_a_config_error_in_a_rank_is_raised_unchanged(two_ranks, tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        two_ranks.restore(tmp_path / "nothing.pt")


def test_a_dead_rank_is_noticed_at_once(two_ranks, model_adapter):
    os.kill(ray.get(two_ranks._actors[1].pid.remote()), signal.SIGKILL)
    with pytest.raises(LearnerLost, match="rank 1 of the learner died") as died:
        two_ranks.update(samples_of_different_lengths(model_adapter))
    assert "\n" not in str(died.value)
