"""FlexAttention computes what SDPA computes, without the blocks that are masked.

Without a GPU it has no backward pass: gradients are compared in the test marked `gpu`.
"""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask, create_mask

from agentrl import config as configuration
from agentrl.check.support import model_comparison
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.models import load_model
from agentrl.training.batching.packing import pack_micro_batches
from agentrl.training.batching.prefix_tree import attention_pairs, build_trees
from agentrl.training.learner.attention import attention_masks, flex_attention
from agentrl.training.plan.job_plan import plan_training
from tests.training.samples import sample

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from family_models import build

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@st.composite
def rows(draw):
    """A row of trees, up to some blocks long: where subtrees end, and positions in the samples."""
    samples = []
    for group in range(draw(st.integers(1, 3))):
        prefix = [group] * draw(st.integers(1, 200))
        for member in range(draw(st.integers(1, 3))):
            samples.append(np.array([*prefix, *[10 + member] * draw(st.integers(1, 150))]))
    ends, positions = [], []
    for tree in build_trees(samples, 10_000, np.inf):
        ends.append(tree.subtree_ends() + sum(map(len, ends)))
        places = np.zeros(tree.length, dtype=np.int64)
        for path in tree.paths.values():
            places[path] = np.arange(len(path))
        positions.append(places)
    return tuple(torch.from_numpy(np.concatenate(own))[None] for own in (ends, positions))


def masks(row, window=None, images=None):
    """The mask of a decoder, as a tensor and in blocks."""
    ends, positions = row
    decoder = SimpleNamespace(_attn_implementation="sdpa", sliding_window=window)
    return [
        attention_masks.build(ends, positions, images, decoder, blocks=blocks)
        for blocks in (False, True)
    ]


@given(row=rows(), window=st.sampled_from([None, 1, 40, 200]), picture=st.integers(0, 250))
@settings(max_examples=25, deadline=None)
def test_blocks_hold_the_mask_and_nothing_is_computed_in_vain(row, window, picture):
    length = row[0].shape[1]
    images = None
    if picture:
        images = torch.zeros(1, length, dtype=torch.bool)
        images[:, 5 : 5 + picture] = True
    dense, blocks = masks(row, window, images)
    attends = blocks.mask_mod
    assert create_mask(attends, 1, 1, length, length, device="cpu").equal(dense)
    padded = F.pad(dense, (0, -length % 128, 0, -length % 128))
    by_block = padded.unflatten(2, (-1, 128)).unflatten(4, (-1, 128))
    some, found = by_block.any(5).any(3), blocks.to_dense().bool()
    assert (found | ~some).all()
    if window is None:
        torchs = create_block_mask(attends, 1, 1, length, length, device="cpu")
        assert found.equal(torchs.to_dense().bool())
        assert blocks.full_kv_num_blocks.sum() == torchs.full_kv_num_blocks.sum()
        if not picture:
            assert attention_pairs(row[0][0].numpy(), 128) == int(found.sum()) * 128**2


@given(
    row=rows(),
    window=st.sampled_from([None, 70]),
    heads=st.sampled_from([(2, 2), (4, 2), (6, 1)]),
    seed=st.integers(0, 99),
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_attention_over_trees_equals_sdpa(row, window, heads, seed):
    dense, blocks = masks(row, window)
    torch.manual_seed(seed)
    query, key, value = (torch.randn(1, h, row[0].shape[1], 16) for h in (*heads, heads[1]))
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=dense, enable_gqa=True)
    torch.testing.assert_close(
        flex_attention.attend(query, key, value, blocks), expected, rtol=1e-5, atol=2e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["Qwen2.5-VL", "Qwen3-VL-MoE", "Gemma 2", "Gemma 3", "Phi-4-multimodal"]
)
def test_models_with_flex_attention_equal_transformers(family, tmp_path):
    """Windows, caps of logits, and images that are not causal among them."""
    folder = build(family, tmp_path / "model")
    encoder = ChatEncoder(folder)
    samples = model_comparison.episodes(encoder)
    model = load_model(folder, model_adapter=encoder.model_adapter)
    ours = model_comparison.packed_logprobs(encoder, model, samples, "flex")
    theirs = model_comparison.transformers_logprobs(folder, encoder, samples)
    assert model_comparison.difference(ours, theirs) < 1e-5


def items_of(model_adapter):
    """Samples of several blocks, each with its own screen after common instructions."""
    common = sample(model_adapter, 0, text=150, pictures=1)
    start = common.token_ids[: common.sampled_positions[0]]
    found = []
    for k in range(4):
        own = sample(model_adapter, k, text=30, reply=3 + k, pictures=k % 3)
        found.append(
            replace(
                own,
                token_ids=(*start, *own.token_ids),
                sampled_positions=tuple(p + len(start) for p in own.sampled_positions),
                images=(*common.images, *own.images),
            )
        )
    return found


def test_a_learner_scores_with_flex_attention_as_with_sdpa(make_learner, config, model_adapter):
    items = items_of(model_adapter)
    scores = {}
    for attention in ("sdpa", "flex"):
        config.model.attention = attention
        learner = make_learner(config)
        layouts = pack_micro_batches(items, learner._batcher.packing, model_adapter.image_token_id)
        assert attention == "sdpa" or [len(rows) for rows in layouts] == [1]
        scores[attention] = learner._logprobs(learner._policy, items)
    for found, expected in zip(scores["flex"], scores["sdpa"], strict=True):
        assert len(found) > 2
        assert found == pytest.approx(expected, abs=5e-6)


def test_the_backward_pass_on_the_cpu_is_refused_before_any_work():
    with pytest.raises(ConfigError, match="flex: FlexAttention has no backward pass on the CPU"):
        plan_training(configuration.load("number_game", ["model.attention=flex"]))


def test_an_attention_of_its_own_is_refused_and_left_alone_by_auto(tiny_vlm):
    model = load_model(tiny_vlm)
    model._supports_attention_backend = False
    with pytest.raises(ConfigError, match="'qwen2_5_vl_text' has a custom attention"):
        flex_attention.prepare(model, "flex", CPU)
    assert not flex_attention.prepare(model, "auto", torch.device("cuda"))


@pytest.mark.parametrize(
    ("attention", "device", "shares", "expected"),
    [
        ("auto", "cuda", True, True),
        ("auto", "cpu", True, False),
        ("sdpa", "cuda", True, False),
        ("flash_attention_2", "cuda", True, True),
        ("flash_attention_2", "cuda", False, False),
    ],
)
def test_flex_attention_is_chosen_on_gpus_wherever_trees_need_it(
    attention, device, shares, expected, tiny_vlm
):
    model = load_model(tiny_vlm)
    settings = model.config.get_text_config()
    if attention.startswith("flash"):
        settings._attn_implementation = attention
    kind = torch.device(device)
    assert flex_attention.prepare(model, attention, kind, shares_prefixes=shares) == expected


def test_dropout_of_the_attention_is_refused():
    states = torch.zeros(1, 1, 8, 16)
    blocks = attention_masks.block_mask(torch.full((1, 8), 8))
    with pytest.raises(ConfigError, match=r"attention_dropout=0\.1"):
        flex_attention.attend(states, states, states, blocks, dropout=0.1)


@pytest.mark.gpu
# Dynamo looks at the gradient of the attention's inputs; float32 is compared without TensorFloat32.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_learner_with_flex_attention_has_the_gradients_of_sdpa(
    make_learner, config, model_adapter, dtype, compiled
):
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    config.model.dtype = dtype
    items = items_of(model_adapter)
    metrics = {}
    for attention in ("sdpa", "auto"):
        config.model.attention = attention
        config.train.compile = compiled and attention == "auto"
        learner = make_learner(config)
        assert learner._policy.module.uses_blocks == (attention == "auto")
        metrics[attention] = [learner.update(items) for _ in range(3)]
    rel, within = (1e-3, 1e-5) if dtype == "float32" else (0.05, 5e-3)
    for found, expected in zip(metrics["auto"], metrics["sdpa"], strict=True):
        for name in ("loss", "grad_norm", "entropy", "mismatch_k1"):
            assert found[name] == pytest.approx(expected[name], rel=rel, abs=within)
