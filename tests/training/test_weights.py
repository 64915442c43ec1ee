import os
import subprocess
import sys
from pathlib import Path

import torch

from agentrl.training.weights import _sweep, read, write

PUBLISH = """
import os, sys, torch
from agentrl.training.weights import publish, write

class Toy:
    def save_weights(self, path):
        write(path, {"w": torch.ones(2)})

print(publish(Toy(), 1), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
"""


def published(how):
    process = subprocess.run(
        [sys.executable, "-c", PUBLISH, how], capture_output=True, text=True, timeout=60
    )
    return Path(process.stdout.strip())


def test_published_weights_end_with_their_process():
    assert not published("ends").parent.exists()


def test_what_a_killed_process_published_is_swept_by_the_next():
    path = published("killed")
    assert path.exists()
    published("ends")
    assert not path.parent.exists()


def test_the_folders_of_living_processes_are_not_swept(tmp_path):
    own = tmp_path / f"agentrl-weights-{os.getpid()}-x"
    own.mkdir()
    _sweep(tmp_path)
    assert own.exists()


def test_a_file_of_weights_is_written_whole(tmp_path):
    write(tmp_path / "deep" / "w.safetensors", {"w": torch.arange(6).view(2, 3).T})
    assert torch.equal(read(tmp_path / "deep")["w"], torch.arange(6).view(2, 3).T)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["w.safetensors"]
