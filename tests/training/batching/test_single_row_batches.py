"""Samples in one row separated by lengths, as for flash-attn, learn the same as with masks."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from agentrl.policies import tiny_model
from agentrl.policies.models import adapter_for, load_model
from agentrl.training.batching.collate import build_batch, sequence_order, token_targets
from agentrl.training.batching.packing import Packing, pack_micro_batches
from agentrl.training.learner import micro_batches
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.network.logprob_model import LogprobModel
from tests.policies import families
from tests.training.samples import sample

FAMILIES = ("qwen2_5_vl", "qwen2_vl", "qwen3_vl", "text")


@pytest.fixture(scope="module")
def by_lengths():
    """The name of an attention that reads lengths, and never a mask, as flash-attn's does."""
    from transformers import AttentionInterface

    def attend(
        module,
        query,
        key,
        value,
        attention_mask,
        scaling,
        cu_seq_lens_q=None,
        cu_seq_lens_k=None,
        max_length_q=None,
        max_length_k=None,
        **rest,
    ):
        assert attention_mask is None
        if cu_seq_lens_q is None:
            bounds = [0, query.shape[2]]
        else:
            assert cu_seq_lens_q.dtype == cu_seq_lens_k.dtype == torch.int32
            assert len(query) == 1
            bounds = cu_seq_lens_q.tolist()
            assert bounds == cu_seq_lens_k.tolist()
            assert bounds[0] == 0
            assert bounds[-1] == query.shape[2]
            assert max_length_q == max_length_k == cu_seq_lens_q.diff().max()
        parts = [
            F.scaled_dot_product_attention(
                query[:, :, begin:end], key[:, :, begin:end], value[:, :, begin:end],
                is_causal=True, scale=scaling, enable_gqa=True,
            )
            for begin, end in pairwise(bounds)
        ]  # fmt: skip
        return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None

    AttentionInterface.register("flash_by_lengths", attend)
    return "flash_by_lengths"


def items_of(model_adapter):
    side = getattr(model_adapter, "patching", None)
    shown, side = (1, 1) if side is None else (3, side.side)
    return [sample(model_adapter, k, reply=3 + k, pictures=k % shown, side=side) for k in range(6)]


def scored(scorer, batches, items):
    """Log-probabilities of all tokens, and the gradient of a sum that weights each differently."""
    found = {}
    for batch, samples in batches:
        logprobs = scorer(batch, 1.0).logprobs
        (logprobs * token_targets([items[i] for i, _ in samples]).advantages).sum().backward()
        at = 0
        for index, count in samples:
            found[index] = logprobs[at : at + count].detach()
            at += count
    gradient = {n: p.grad.clone() for n, p in scorer.named_parameters() if p.grad is not None}
    scorer.zero_grad()
    return [found[index] for index in sorted(found)], gradient


def packed(items, model_adapter, most):
    packing = Packing(max_tokens=most, attention_break_even=1.0, attention_masks=False)
    for rows in pack_micro_batches(items, packing, model_adapter.image_token_id):
        order = [(index, items[index].num_sampled) for index in sequence_order(rows)]
        yield build_batch(items, rows, model_adapter), order


def apart(items, model_adapter):
    for index, item in enumerate(items):
        yield micro_batches.single_batch([item], model_adapter), [(index, item.num_sampled)]


@pytest.mark.parametrize("family", FAMILIES)
def test_one_row_without_padding_equals_separate_rows(family, by_lengths, tiny_vlm, tmp_path: Path):
    """Of all samples, or of as many as a bound allows."""
    folder = families.build(family, tiny_vlm, tmp_path / family)
    model_adapter, model = adapter_for(folder), load_model(folder)
    items = items_of(model_adapter)
    scorer = LogprobModel(model, model_adapter)
    expected = scored(scorer, apart(items, model_adapter), items)
    whole = torch.stack([own.norm() for own in expected[1].values()]).norm()
    model.config.get_text_config()._attn_implementation = by_lengths
    assert not scorer.supports_masks
    for most in (120, 10_000):
        batches = list(packed(items, model_adapter, most))
        assert any(len(order) > 1 for _, order in batches)
        for batch, order in batches:
            tokens = sum(len(items[index].token_ids) for index, _ in order)
            assert batch.token_ids.shape == (1, tokens)
            assert tokens <= most or len(order) == 1
        found = scored(scorer, batches, items)
        torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-4)
        assert found[1].keys() == expected[1].keys()
        for name, own in expected[1].items():
            assert (found[1][name] - own).norm() < 1e-4 * own.norm() + 1e-7 * whole, (most, name)


def test_a_learner_without_masks_learns_the_same_from_one_row(
    make_learner, config, model_adapter, by_lengths
):
    config.train.share_prefixes = False
    items = items_of(model_adapter)
    plain, lengths = make_learner(config), make_learner(config)
    lengths._policy.module.policy.config.get_text_config()._attn_implementation = by_lengths
    packing = replace(
        lengths._batcher.packing, attention_masks=lengths._policy.module.supports_masks
    )
    lengths._batcher = replace(lengths._batcher, packing=packing)
    assert [len(rows) for rows in pack_micro_batches(items, packing, None)] == [1]
    for _ in range(3):
        expected, found = plain.update(items), lengths.update(items)
        for name in ("loss", "grad_norm", "entropy", "approx_kl", "mismatch_k1", "tokens_computed"):
            assert found[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6)


@pytest.mark.gpu
def test_flash_attn_learns_what_sdpa_does(config, tmp_path):
    pytest.importorskip("flash_attn")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    folder = tiny_model.build(tmp_path / "tiny", 0)
    items = items_of(adapter_for(folder))
    config.model.dtype = "bfloat16"
    metrics = {}
    for attention in ("flash_attention_2", "sdpa"):
        config.model.attention = attention
        learner = Learner(LearnerSettings.of(config), folder)
        assert learner._policy.module.uses_blocks == (attention != "sdpa")
        metrics[attention] = [learner.update(items) for _ in range(3)]
        learner.close()
    for found, expected in zip(metrics["flash_attention_2"], metrics["sdpa"], strict=True):
        for name in ("loss", "grad_norm", "entropy", "mismatch_k1"):
            assert found[name] == pytest.approx(expected[name], rel=0.05, abs=5e-3)
