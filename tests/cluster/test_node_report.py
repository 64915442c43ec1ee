"""What a node reports about itself, and where there is room for new weights."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.cli import run
from agentrl.cluster.machine_resources import Space
from agentrl.cluster.node_report import WeightSpace
from agentrl.cluster.placement import Node
from agentrl.cluster.reservation import weights_folder
from agentrl.errors import ConfigError

GIB = 1 << 30
SECOND = Node(id="b", address="10.0.0.2", cpus=16, gpus=2)


@pytest.mark.adb
def test_this_machine_is_reported_without_a_cluster(tmp_path, monkeypatch, capsys, adb_server):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    assert run(["cluster", "--model", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("this machine\n  ok       versions            Python 3.")
    assert f"{tmp_path}, 0.00 GiB of weights" in said
    assert "1 of 1 node can be used for jobs.\nNext: agentrl train number_game --dry-run" in said


def room(shm, temporary):
    spaces = [
        None if free is None else Space(total=10 * GIB, free=free) for free in (shm, temporary)
    ]
    return WeightSpace(shm=spaces[0], temporary=spaces[1], temporary_folder="/tmp")


@pytest.mark.parametrize(
    ("shm", "temporary", "folder"),
    [(2 * GIB, 0, None), (64 << 20, 3 * GIB, "/tmp"), (None, 2 * GIB, "/tmp")],
)
def test_weights_that_do_not_fit_into_memory_go_to_the_disk(shm, temporary, folder, caplog):
    found = weights_folder(SECOND, room(shm, temporary), 2 * GIB, "weights")
    assert found == (None if folder is None else Path(folder))
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == (shm == 64 << 20)
    assert all("2,147 MB; 67 MB are free in /dev/shm" in text for text in warned)


def test_weights_without_room_are_refused():
    with pytest.raises(ConfigError, match=r"10\.0\.0\.2: weights need 2,147 MB.*--shm-size"):
        weights_folder(SECOND, room(64 << 20, GIB), 2 * GIB, "weights")


# A container's /dev/shm of 2 MB, in a mount namespace of its own.
SMALL = 'mount -t tmpfs -o size=2m tmpfs /dev/shm && exec "$@"'
PUBLISH = """
import sys
from pathlib import Path

import torch
from agentrl.cluster.placement import plan_layout
from agentrl.cluster.node_discovery import find_nodes
from agentrl.cluster.reservation import Reservation
from agentrl.config import RolloutConfig, TrainConfig
from agentrl.weight_sync import published_weights
from agentrl.weight_sync import safetensors_files

weights = {"w": torch.zeros(750_000)}

class Learner:
    def save_weights(self, path):
        safetensors_files.write(path, weights)

model = Path(sys.argv[1])
safetensors_files.write(model / "model.safetensors", weights)
rollout = RolloutConfig(launcher="local", engine="hf")
layout = plan_layout(find_nodes("local"), rollout, TrainConfig(), 1)
needed = 2 * 750_000 * 4
published_weights.use_folder(Reservation(layout, 10).place_weights(needed, "weights"))
for version in range(2):
    path = published_weights.publish(Learner(), version)
print(path)
"""


def test_a_job_publishes_where_there_is_room(tmp_path):
    enter = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL, "sh"]
    if subprocess.run([*enter, "true"], capture_output=True, timeout=20).returncode:
        pytest.skip("needs user namespaces")
    done = subprocess.run(
        [*enter, sys.executable, "-c", PUBLISH, tmp_path / "model"],
        capture_output=True, text=True, timeout=100, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
