"""Each rank reads its own part of a model's files, and all ranks write one model together."""

import shutil
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from agentrl.config import Config, LoraConfig
from agentrl.errors import ConfigError
from agentrl.policies.models import load_model
from agentrl.policies.models.stored_weights import open_model
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.parallel.sharding import local_shard
from tests.policies import families
from tests.training.rank_processes import run_ranks

BASES = {"full": None, "lora": "float", "qlora": "nf4"}


def loaded(folder: Path, base: str | None, rank: int = 0, world: int = 1, meet: str | None = None):
    config = Config()
    config.model.dtype = "bfloat16"
    if base is not None:
        config.model.lora = LoraConfig(rank=2, base=base)
    return Learner(LearnerSettings.of(config), folder, rank, world, meet)


def write(folder: Path, out: Path, world: int, rank: int) -> None:
    """What one of several ranks loads, and what all of them write."""
    for name, base in BASES.items():
        learner = loaded(folder, base, rank, world, f"file://{out / name}.meet")
        try:
            if base is None:
                check_shards(learner, folder)
                try:
                    learner.save_weights(Path("/proc/no/such/folder/w.safetensors"))
                except OSError:
                    assert rank == 0  # and the others were not left waiting
            reference = learner._models.make_reference()
            reference.copy_merged(learner._policy)
            reference.save(out / f"{name}-reference.safetensors")
            learner.save_weights(out / f"{name}.safetensors")
            dist.barrier()  # rank 0 may still be writing
            learner.load_weights(out / f"{name}.safetensors")
            learner.export(out / name)
            dist.barrier()
            learner.load_weights(out / name)
            if base is not None:
                learner.save_base(out / f"{name}-base.safetensors")
                learner.save_adapter(out / f"{name}-adapter")
        finally:
            learner.close()


def check_shards(learner: Learner, folder: Path) -> None:
    """A rank has its rows of the files' weights, and no others."""
    expected = load_model(folder, dtype="bfloat16").state_dict()
    count, rank = learner._rank.world_size, learner._rank.number
    for name, tensor in learner._policy.state_tensors().items():
        rows = -(-len(expected[name]) // count)
        own = expected[name][rank * rows : (rank + 1) * rows].float()
        assert local_shard(tensor).float().equal(own), name


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.timeout(300)
def test_several_ranks_load_and_write_what_one_does(world, tiny_vlm, tmp_path):
    one, several = tmp_path / "one", tmp_path / "several"
    for out in (one, several):
        out.mkdir()
    write(tiny_vlm, one, 1, 0)
    run_ranks(world, write, tiny_vlm, several, world)
    written = sorted(path.relative_to(one) for path in one.rglob("*.safetensors"))
    assert len(written) == 3 * 3 + 2 * 2
    for path in written:
        expected, found = load_file(one / path), load_file(several / path)
        assert expected.keys() == found.keys()
        assert all(tensor.equal(found[name]) for name, tensor in expected.items()), path


@pytest.mark.parametrize("equal", [True, False])
def test_a_head_that_is_stored_beside_its_embedding_is_tied_if_they_are_equal(
    equal, tiny_vlm, tmp_path
):
    folder = families.tie(shutil.copytree(tiny_vlm, tmp_path / "model"))
    weights = load_file(folder / "model.safetensors")
    (embedding,) = (tensor for name, tensor in weights.items() if "embed_tokens" in name)
    weights["lm_head.weight"] = embedding.clone() if equal else embedding + 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    names = dict(load_model(folder).named_parameters()).keys()
    assert ("lm_head.weight" not in names) == equal
    assert dict(open_model(folder)[0].named_parameters()).keys() == names


def test_a_model_that_lacks_weights_is_rejected_and_other_files_are_ignored(tiny_vlm, tmp_path):
    folder = shutil.copytree(tiny_vlm, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file({"other": torch.zeros(1)}, folder / "consolidated.safetensors")
    open_model(folder)
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"1 weights are missing .*, such as lm_head\.weight"):
        open_model(folder)
