"""Compiled layers learn what plain ones do, and are not compiled again for every row length."""

import json
from functools import partial

import pytest
import torch
from torch.distributed.tensor import DTensor

from agentrl import config as configuration
from agentrl.errors import ConfigError
from agentrl.policies.models import adapter_for
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.parallel import sharding
from agentrl.training.plan.job_plan import plan_training
from tests.training.rank_processes import run_ranks
from tests.training.samples import sample


def steps(model_adapter):
    """Samples of different lengths for some updates, with and without a mask."""
    for step in range(4):
        yield [
            sample(model_adapter, k, text=5 + 7 * step + k, reply=3 + k + step, pictures=k % 3)
            for k in range(2 + step % 4)
        ]


# Dynamo looks at the gradient of a layer's input.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_learner_with_compiled_layers_learns_the_same_without_compiling_each_length(
    make_learner, config, model_adapter
):
    config.train.gradient_checkpointing = True
    plain = make_learner(config)
    config.train.compile = True
    compiled = make_learner(config)
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    graphs = []
    for items in steps(model_adapter):
        expected, found = plain.update(items), compiled.update(items)
        for name in ("loss", "grad_norm", "entropy", "mismatch_k1"):
            assert found[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6)
        graphs.append(counters["stats"]["unique_graphs"])
    assert not counters["graph_break"]
    assert graphs[1] == graphs[-1] > 0, graphs


# Dynamo looks at the gradient of a layer's input.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_only_rows_and_their_length_are_symbols_of_the_compiled_code(
    make_learner, config, model_adapter, monkeypatch
):
    """FlexAttention's kernel for GPUs rejects symbols as numbers of heads."""
    found = []

    def uncompiled(graph, _):
        for node in graph.graph.nodes:
            if "scaled_dot_product" in str(node.target):
                found.append([one.meta["example_value"].shape for one in node.args[:3]])
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=uncompiled))
    config.train.compile = True
    make_learner(config).update(next(iter(steps(model_adapter))))
    assert found
    sizes = [size for shapes in found for shape in shapes for size in shape[1::2]]
    assert {type(size) for size in sizes} == {int}, found


def compiled_rank(config, folder, out, rank):
    """One of two ranks that gather each layer apart, as of a large model."""
    sharding._LAYERWISE = 0
    # Traced and differentiated alike, but no code is generated, which takes most of the time.
    torch.compile = partial(torch.compile, backend="aot_eager")
    learner = Learner(LearnerSettings.of(config), folder, rank, 2, f"file://{out / 'meet'}")
    layers, sharded = list(learner._policy.module.layers()), []
    for layer, other in (layers, layers[::-1]):
        layer.register_forward_pre_hook(
            lambda *_, mlp=other.mlp: sharded.append(isinstance(mlp.gate_proj.weight, DTensor))
        )
    metrics = [learner.update(items) for items in steps(adapter_for(folder))]
    learner.close()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert sharded
    assert all(sharded), "a layer was gathered while the other one ran"
    (out / f"{rank}.json").write_text(json.dumps(metrics))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_ranks_that_gather_compiled_layers_apart_learn_what_one_without_does(
    make_learner, config, model_adapter, tiny_vlm, tmp_path
):
    plain = make_learner(config)
    expected = [plain.update(items) for items in steps(model_adapter)]
    config.train.compile = True
    run_ranks(2, compiled_rank, config, tiny_vlm, tmp_path)
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        for step, one_rank in zip(found, expected, strict=True):
            del step["seconds"]
            assert step == pytest.approx({n: one_rank[n] for n in step}, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["train.ranks=2", "train.sequence_parallel=2"], "layers communicate with other ranks"),
        (["train.ranks=2", "train.tensor_parallel=2"], "layers communicate with other ranks"),
        (["model.lora.rank=4", "model.lora.base=nf4"], "4-bit weights cannot be compiled"),
    ],
)
def test_what_cannot_be_compiled_is_refused(overrides, said):
    with pytest.raises(ConfigError, match=said):
        plan_training(configuration.load("number_game", ["train.compile=true", *overrides]))


def test_a_missing_compiler_is_an_error_before_any_work(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ConfigError, match="requires no-such-compiler, which is not installed"):
        plan_training(configuration.load("number_game", ["train.compile=true"]))
