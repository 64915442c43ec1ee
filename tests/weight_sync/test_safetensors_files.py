import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from agentrl.policies.engines.weight_checks import digest
from agentrl.weight_sync.safetensors_files import read, write


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
