import json
import resource

import pytest
import torch
from safetensors.torch import load_file

from agentrl.policies.models.stored_weights import open_files
from agentrl.training.learner.hf_folder_export import export


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
