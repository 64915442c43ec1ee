import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from agentrl.weight_sync.weight_files import _remove_stale_folders, export, read, write

PUBLISH = """
import os, sys
from agentrl.weight_sync.weight_files import publish

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
    _remove_stale_folders(tmp_path)
    assert own.exists()


def test_a_weight_file_is_written_atomically(tmp_path):
    write(tmp_path / "deep" / "w.safetensors", {"w": torch.arange(6).view(2, 3).T})
    assert torch.equal(read(tmp_path / "deep")["w"], torch.arange(6).view(2, 3).T)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["w.safetensors"]


def test_an_exported_configuration_has_the_dtype_of_its_weights(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    config = {"dtype": "float32", "hidden": 8, "text_config": {"torch_dtype": "float32"}}
    (source / "config.json").write_text(json.dumps(config))
    export(source, tmp_path / "model", {"w": torch.ones(2, dtype=torch.bfloat16)})
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    assert written == {"dtype": "bfloat16", "hidden": 8, "text_config": {"torch_dtype": "bfloat16"}}
    assert json.loads((source / "config.json").read_text()) == config


def test_an_export_on_a_full_disk_fails_and_cleans_up(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    # Python ignores SIGXFSZ: a file that would be larger reads as a disk without room.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match="cannot be written"):
            export(source, tmp_path / "large", {"w": torch.ones(1_000_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {p.name for p in tmp_path.iterdir()} == {"source"}
