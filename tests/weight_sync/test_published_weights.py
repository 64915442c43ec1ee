import logging
import os
import subprocess
import sys
from pathlib import Path

import torch

from agentrl.config import LoraConfig, RolloutConfig, TrainConfig
from agentrl.policies.engines.weight_checks import digest
from agentrl.weight_sync import safetensors_files
from agentrl.weight_sync.published_weights import remove_stale_folders
from agentrl.weight_sync.publisher import Publisher
from agentrl.weight_sync.transport_choice import TransportChoice

PUBLISH = """
import os, sys
from agentrl.weight_sync.published_weights import publish

class Toy:
    def save_weights(self, path):
        path.write_text("weights")

print(publish(Toy(), 1), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
"""


def published(how):
    process = subprocess.run(
        [sys.executable, "-c", PUBLISH, how], capture_output=True, text=True, timeout=60
    )
    return Path(process.stdout.strip())


def test_weights_are_removed_at_exit_and_those_of_a_killed_process_by_the_next():
    path = published("killed")
    assert path.exists()
    assert not published("ends").parent.exists()
    assert not path.parent.exists()


def test_folders_of_running_processes_are_not_removed(tmp_path):
    own = tmp_path / f"agentrl-weights-{os.getpid()}-x"
    own.mkdir()
    remove_stale_folders(tmp_path)
    assert own.exists()


WEIGHTS = {"w": torch.arange(3.0)}


class Learner:
    def save_weights(self, path):
        safetensors_files.write(path, WEIGHTS, checked=True)


class Engines:
    async def load_weights(self, path, version):
        assert path.is_file()


async def test_the_checksum_of_published_weights_is_logged(caplog):
    caplog.set_level(logging.INFO, "agentrl.weight_sync.publisher")
    rollout = RolloutConfig(engine="hf", launcher="local")
    choice = TransportChoice(rollout=rollout, train=TrainConfig(), lora=LoraConfig())
    await Publisher(choice, Learner(), Engines()).publish(7)
    assert f"weights of version 7, checksum {digest(WEIGHTS)}" in caplog.text
