"""Print the table of docs/models.md: what was checked for each model family, and how exactly.

Each family is a tiny random model of its architecture with the family's chat template; see
`family_models.py`. transformers is the judge: its chat templates and processors, its own forward
pass of every sequence alone.

    python benchmarks/model_families.py
    python benchmarks/model_families.py --vllm --family "Gemma 3"
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from family_models import FAMILIES, build
from rich.console import Console
from rich.table import Table

from agentrl import __version__
from agentrl.config import AlgorithmConfig, Config
from agentrl.errors import AgentRLError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.conversation import Conversation
from agentrl.policies.chat.template_probe import check_template
from agentrl.policies.engines import hf_decoding
from agentrl.policies.engines.engine import EngineSettings, Sampling
from agentrl.policies.models import load_model
from agentrl.training.batching.collate import build_batch, sequence_order
from agentrl.training.batching.packing import Packing, pack_micro_batches
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.logprob_model import LogprobModel
from agentrl.types import IMAGE, Message, Prompt, TrainingSample

_SIBLINGS, _TURNS = 3, 2
_REPLY = 6
"""Tokens of a reply."""


def episodes(encoder: ChatEncoder) -> list[TrainingSample]:
    """A group of conversations with one first message; with images, each turn shows one."""
    rng = np.random.default_rng(0)
    sees = encoder.model_adapter.image_token_id is not None
    found = []
    for member in range(_SIBLINGS):
        talk, places = Conversation(encoder, "Play the game."), list[int]()
        for turn in range(_TURNS):
            seed = turn if turn == 0 else 10 * member + turn
            prompt = talk.observe(_message(seed, turn, sees))
            reply = rng.integers(33, 200, _REPLY).tolist()
            places += range(len(prompt.token_ids), len(prompt.token_ids) + _REPLY)
            talk.answer(reply)
        found.append(_sample(prompt, reply, places, member))
    return found


def _message(seed: int, turn: int, sees: bool) -> Message:
    image = np.random.default_rng(seed).integers(0, 255, (140, 84 + 28 * turn, 3), np.uint8)
    images = (image,) if sees else ()
    text = f"Turn {turn}:\n{IMAGE * len(images)}\nWhat now? <eos><|im_end|>"
    return Message(role="user", text=text, images=images)


def _sample(
    prompt: Prompt, reply: Sequence[int], places: Sequence[int], member: int
) -> TrainingSample:
    count = len(places)
    return TrainingSample(
        token_ids=(*prompt.token_ids, *reply),
        sampled_positions=tuple(places),
        logprobs=(-5.0,) * count,
        old_logprobs=(-5.0,) * count,
        versions=(0,) * count,
        turns=tuple(k // _REPLY for k in range(count)),
        images=prompt.images,
        episode=member,
        advantages=(1.0 if member == 0 else -0.5,) * count,
        reference_logprobs=None,
        values=None,
        returns=None,
        bce_gradient=None,
    )


def packed_logprobs(
    encoder: ChatEncoder, model: torch.nn.Module, samples: Sequence[TrainingSample]
) -> list[list[float]]:
    """Log-probabilities of each sample's sampled tokens, with shared prefixes, as the learner's."""
    adapter, scorer = encoder.model_adapter, LogprobModel(model, encoder.model_adapter)
    packing = Packing(
        max_tokens=10_000,
        attention_break_even=scorer.attention_break_even(),
        share_prefixes=True,
        attention_masks=scorer.supports_masks,
        read_last_tokens=False,
    )
    found: list[list[float]] = [[] for _ in samples]
    for rows in pack_micro_batches(samples, packing, adapter.image_token_id):
        batch = build_batch(samples, rows, adapter)
        assert batch.has_branches, "the samples share prefixes"
        with torch.no_grad():
            values = scorer(batch, 1.0).logprobs.tolist()
        for index in sequence_order(rows):
            count = samples[index].num_sampled
            found[index], values = values[:count], values[count:]
    return found


def transformers_logprobs(
    folder: Path, encoder: ChatEncoder, samples: Sequence[TrainingSample]
) -> list[list[float]]:
    """The same by transformers: its processor's tensors, each sequence alone, eager attention."""
    import transformers

    sees = encoder.model_adapter.image_token_id is not None
    loader = "AutoModelForImageTextToText" if sees else "AutoModelForCausalLM"
    model: Any = getattr(transformers, loader).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    processor: Any = transformers.AutoProcessor.from_pretrained(folder) if sees else None
    found = []
    for sample in samples:
        ids = torch.tensor([sample.token_ids])
        inputs: dict[str, Any] = {"input_ids": ids}
        if processor is not None:
            arguments = encoder.model_adapter.processor_arguments()
            shown = [  # each image alone, as a prompt of one image shows it
                processor.image_processor([image], return_tensors="pt", **arguments)
                for image in sample.images
            ]
            known = inspect.signature(model.forward).parameters
            for name in shown[0]:
                if name in known:
                    inputs[name] = _stacked([own[name] for own in shown])
            is_image = ids.eq(int(encoder.model_adapter.image_token_id or 0))
            for name in ("mm_token_type_ids", "token_type_ids"):
                if name in known:
                    inputs[name] = is_image.long()
            inputs.pop("batch_num_images", None)
        with torch.no_grad():
            logits = model.eval()(**inputs).logits[0].float()
        logits[:, list(encoder.model_adapter.banned_token_ids)] = -torch.inf
        table = torch.log_softmax(logits, -1)
        at = sample.sampled_positions
        found.append([float(table[place - 1, sample.token_ids[place]]) for place in at])
    return found


def _stacked(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tensors of several images, padded to the largest number of tiles."""
    if parts[0].dim() < 5:
        return torch.cat(list(parts))
    most = max(part.shape[1] for part in parts)
    padded = [torch.nn.functional.pad(p, (0,) * 6 + (0, most - p.shape[1])) for p in parts]
    return torch.cat(padded)


def difference(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """Largest difference of two lists of log-probabilities."""
    assert [len(own) for own in ours] == [len(own) for own in theirs]
    return max(
        abs(a - b) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)
    )


def check_engine(folder: Path, encoder: ChatEncoder, *, vllm: bool = False) -> float:
    """Largest difference between an engine's log-probabilities of its replies and transformers'."""
    asked = [_asked(sample) for sample in episodes(encoder)]
    if vllm:
        replies = asyncio.run(_vllm_replies(folder, asked))
    else:
        model = load_model(folder, model_adapter=encoder.model_adapter).eval()
        how = [Sampling(max_new_tokens=_REPLY, seed=seed) for seed in range(len(asked))]
        drawn = hf_decoding.generate_batch(
            model, encoder.model_adapter, asked, how, encoder.eos_token_ids
        )
        replies = [(tuple(reply.token_ids), tuple(reply.logprobs)) for reply in drawn]
    samples = [
        replace(
            _sample(prompt, ids, range(len(prompt.token_ids), len(prompt.token_ids) + len(ids)), 0),
            logprobs=logprobs,
        )
        for prompt, (ids, logprobs) in zip(asked, replies, strict=True)
    ]
    expected = transformers_logprobs(folder, encoder, samples)
    return difference([sample.logprobs for sample in samples], expected)


def _asked(sample: TrainingSample) -> Prompt:
    """The prompt of a sample's last reply."""
    return Prompt(token_ids=sample.token_ids[:-_REPLY], images=sample.images)


async def _vllm_replies(
    folder: Path, asked: Sequence[Prompt]
) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    from agentrl.policies.engines.vllm_engine import VLLMEngine

    engine = VLLMEngine(EngineSettings(folder=folder, max_context=2048))
    try:
        await engine.start()
        how = [Sampling(max_new_tokens=_REPLY, seed=seed) for seed in range(len(asked))]
        pairs = zip(asked, how, strict=True)
        replies = await asyncio.gather(*(engine.generate(p, s) for p, s in pairs))
    finally:
        await engine.close()
    return [(reply.token_ids, reply.logprobs) for reply in replies]


def trained(folder: Path, encoder: ChatEncoder) -> tuple[float, float]:
    """Mean log-probability of the better replies over the others', before and after GRPO steps."""
    config = Config(algorithm=AlgorithmConfig(name="grpo"))
    config.optim.lr, config.train.compare_engine = 3e-3, False
    learner = Learner(config, folder)
    try:
        samples = episodes(encoder)
        margins = []
        for step in range(3):
            scores = [own.old_logprobs or () for own in learner.score_tokens(samples)]
            if not all(scores):
                model = load_model(folder, model_adapter=encoder.model_adapter)
                scores = [tuple(own) for own in packed_logprobs(encoder, model, samples)]
            margins.append(_margin(samples, scores))
            now = [
                replace(sample, logprobs=own, old_logprobs=own)
                for sample, own in zip(samples, scores, strict=True)
            ]
            learner.update(now, step)
        after = folder.with_name(f"{folder.name}-trained")
        learner.export(after)
        model = load_model(after, model_adapter=encoder.model_adapter)
        margins.append(_margin(samples, packed_logprobs(encoder, model, samples)))
    finally:
        learner.close()
    return margins[0], margins[-1]


def _margin(samples: Sequence[TrainingSample], scores: Sequence[Sequence[float]]) -> float:
    means = [float(np.mean(own)) for own in scores]
    better = [m for m, sample in zip(means, samples, strict=True) if sample.advantages[0] > 0]
    others = [m for m, sample in zip(means, samples, strict=True) if sample.advantages[0] < 0]
    return float(np.mean(better) - np.mean(others))


def row(name: str, scratch: Path, *, vllm: bool) -> list[str]:
    """One line of the table."""
    folder = build(name, scratch / name.replace(" ", "-"))
    encoder = ChatEncoder(folder)
    cells = [name, type(encoder.model_adapter).__name__]
    try:
        equal = check_template(encoder, folder) == "prompts are those of the model's own template"
        samples = episodes(encoder)
        model = load_model(folder, model_adapter=encoder.model_adapter)
        theirs = transformers_logprobs(folder, encoder, samples)
        worst = difference(packed_logprobs(encoder, model, samples), theirs)
        before, after = trained(folder, encoder)
        cells += ["yes" if equal else "NO", f"{worst:.0e}"]
        cells += [f"{check_engine(folder, encoder):.0e}"]
        cells += ["yes" if after > before else "NO"]
    except AgentRLError as error:
        return [*cells, str(error)]
    if vllm:
        try:
            cells.append(f"{check_engine(folder, encoder, vllm=True):.0e}")
        except AgentRLError as error:
            cells.append(f"no: {str(error)[:120]}")
    return cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), help="only these")
    parser.add_argument("--vllm", action="store_true", help="also start vLLM, a minute for each")
    options = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    import transformers

    console = Console(soft_wrap=True)
    console.print(
        f"agentrl {__version__}, transformers {transformers.__version__}, torch {torch.__version__}"
    )
    columns = ["family", "adapter", "prompts equal", "log-probabilities", "hf engine", "trains"]
    table = Table(*columns, *(["vLLM on the CPU"] if options.vllm else []))
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.family or FAMILIES:
            table.add_row(*row(name, Path(scratch), vllm=options.vllm))
    console.print(table)


if __name__ == "__main__":
    main()
