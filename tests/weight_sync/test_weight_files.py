import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from agentrl.policies.engines.weight_checks import digest
from agentrl.policies.models.stored_weights import open_files
from agentrl.weight_sync.weight_files import export, read, remove_stale_folders, write

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
    remove_stale_folders(tmp_path)
    assert own.exists()


def test_a_weight_file_is_written_atomically(tmp_path):
    write(tmp_path / "deep" / "w.safetensors", {"w": torch.arange(6).view(2, 3).T})
    assert torch.equal(read(tmp_path / "deep")["w"], torch.arange(6).view(2, 3).T)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["w.safetensors"]


@pytest.mark.parametrize("checked", [False, True])
def test_safetensors_reads_a_file_that_was_written_as_a_stream(checked, tmp_path):
    weights = {
        "a": torch.rand(3, 2), "b": torch.rand(2, 0, 4), "c": torch.tensor(1, dtype=torch.int64),
        "name/with.dots": torch.rand(5).bfloat16(), "d": torch.tensor([True, False]),
    }  # fmt: skip
    path = tmp_path / "w.safetensors"
    write(path, weights, checked=checked)
    found = load_file(path)
    assert found.keys() == weights.keys()
    assert all(tensor.equal(found[name]) for name, tensor in weights.items())
    with safe_open(path, framework="pt") as file:
        expected = {"format": "pt"} | ({"digest": digest(weights)} if checked else {})
        assert file.metadata() == expected


def test_a_large_model_is_exported_as_several_files_with_an_index(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    weights = {f"w{number}": torch.rand(10) for number in range(5)}  # 40 bytes each
    export(source, tmp_path / "model", weights, iter(weights.items()), max_bytes=100)
    names = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    assert sorted(p.name for p in (tmp_path / "model").glob("*.safetensors")) == names
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 200}
    for name, tensor in weights.items():
        assert load_file(tmp_path / "model" / index["weight_map"][name])[name].equal(tensor)
    found = open_files(tmp_path / "model")
    assert all(found[name][...].equal(tensor) for name, tensor in weights.items())


def test_an_exported_configuration_has_the_dtype_of_its_weights(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    config = {"dtype": "float32", "hidden": 8, "text_config": {"torch_dtype": "float32"}}
    (source / "config.json").write_text(json.dumps(config))
    weights = {"w": torch.ones(2, dtype=torch.bfloat16)}
    export(source, tmp_path / "model", weights, weights.items())
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    assert written == {"dtype": "bfloat16", "hidden": 8, "text_config": {"torch_dtype": "bfloat16"}}
    assert json.loads((source / "config.json").read_text()) == config


def test_an_export_on_a_full_disk_fails_and_cleans_up(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    # Python ignores SIGXFSZ: a file that would be larger reads as a disk without room.
    weights = {"w": torch.ones(1_000_000)}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match="cannot be written"):
            export(source, tmp_path / "large", weights, weights.items())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {p.name for p in tmp_path.iterdir()} == {"source"}
