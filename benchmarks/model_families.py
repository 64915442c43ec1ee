"""Print the table in docs/models.md: the checks of each model family, and their precision.

Each family is represented by a tiny random model with its architecture and chat template; see
`family_models.py`. The reference is transformers: its chat templates, its processors, and its own
forward pass over each sequence separately.

    python benchmarks/model_families.py
    python benchmarks/model_families.py --vllm --family "Gemma 3"
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from family_models import FAMILIES, build
from safetensors.torch import save_file

from agentrl import __version__
from agentrl.check.support.model_comparison import (
    REPLY_TOKENS,
    difference,
    episodes,
    packed_logprobs,
    reply_sample,
    transformers_logprobs,
)
from agentrl.config import Config, algorithm_config
from agentrl.errors import AgentRLError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.template_comparison import check_template
from agentrl.policies.engines import hf_decoding
from agentrl.policies.engines.engine import EngineSettings, Sampling
from agentrl.policies.engines.hf_decoding import SampledReply
from agentrl.policies.models import load_model
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.types import Prompt, Reply, TrainingSample


def hf_difference(folder: Path, encoder: ChatEncoder) -> float:
    """Return the largest difference between the hf engine's log-probabilities and transformers'."""
    asked = [_asked(sample) for sample in episodes(encoder)]
    model = load_model(folder, model_adapter=encoder.model_adapter).eval()
    replies = hf_decoding.generate_batch(
        model, encoder.model_adapter, asked, _samplings(asked), encoder.eos_token_ids
    )
    return _difference(folder, encoder, asked, replies)


def vllm_difference(folder: Path, encoder: ChatEncoder) -> float:
    """Return the same for vLLM, with the folder's weights and with weights loaded later."""
    asked = [_asked(sample) for sample in episodes(encoder)]
    model = load_model(folder)
    for parameter in model.parameters():
        parameter.data.mul_(1.2)
    other = folder.with_name(f"{folder.name}-other")
    shutil.copytree(folder, other, ignore=shutil.ignore_patterns("*.safetensors*"))
    model.save_pretrained(other)  # type: ignore[operator]
    published = folder.with_name(f"{folder.name}-published.safetensors")
    save_file({name: p.detach().clone() for name, p in model.named_parameters()}, published)
    before, after = asyncio.run(_vllm_replies(folder, asked, published))
    return max(
        _difference(folder, encoder, asked, before), _difference(other, encoder, asked, after)
    )


def _difference(
    folder: Path,
    encoder: ChatEncoder,
    asked: Sequence[Prompt],
    replies: Sequence[Reply | SampledReply],
) -> float:
    samples = [
        replace(
            reply_sample(
                prompt,
                reply.token_ids,
                range(len(prompt.token_ids), len(prompt.token_ids) + len(reply.token_ids)),
                0,
            ),
            logprobs=tuple(reply.logprobs),
        )
        for prompt, reply in zip(asked, replies, strict=True)
    ]
    expected = transformers_logprobs(folder, encoder, samples)
    return difference([sample.logprobs for sample in samples], expected)


def _asked(sample: TrainingSample) -> Prompt:
    """Return the prompt of a sample's last reply."""
    return Prompt(token_ids=sample.token_ids[:-REPLY_TOKENS], images=sample.images)


def _samplings(asked: Sequence[Prompt]) -> list[Sampling]:
    return [Sampling(max_new_tokens=REPLY_TOKENS, seed=seed) for seed in range(len(asked))]


async def _vllm_replies(
    folder: Path, asked: Sequence[Prompt], published: Path
) -> list[list[Reply]]:
    """Sample replies with the weights of a folder, then with the weights of a file."""
    from agentrl.policies.engines.vllm_engine import VLLMEngine

    engine = VLLMEngine(EngineSettings(folder=folder, max_context=2048))
    found = []
    try:
        await engine.start()
        for version in (0, 1):
            if version:
                await engine.load_weights(published, version)
            pairs = zip(asked, _samplings(asked), strict=True)
            found.append(await asyncio.gather(*(engine.generate(p, s) for p, s in pairs)))
    finally:
        await engine.close()
    return found


def trained(folder: Path, encoder: ChatEncoder) -> tuple[float, float]:
    """Return the mean log-probability margin of the better replies before and after GRPO steps."""
    config = Config(algorithm=algorithm_config("grpo"))
    config.optim.lr, config.train.compare_engine = 3e-3, False
    learner = Learner(LearnerSettings.of(config), folder)
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
    """Check a family and return its table row."""
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
        cells += [f"{hf_difference(folder, encoder):.0e}"]
        cells += ["yes" if after > before else "NO"]
    except AgentRLError as error:
        return [*cells, str(error)]
    if vllm:
        try:
            cells.append(f"{vllm_difference(folder, encoder):.0e}")
        except AgentRLError as error:
            cells.append(f"no: {str(error)[:120]}")
    return cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--family", action="append", choices=sorted(FAMILIES), help="only these families"
    )
    parser.add_argument(
        "--vllm", action="store_true", help="also check vLLM, about a minute per family"
    )
    options = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    import transformers

    print(
        f"agentrl {__version__}, transformers {transformers.__version__}, torch {torch.__version__}"
    )
    columns = ["family", "adapter", "prompts equal", "log-probabilities", "hf engine", "trains"]
    columns += ["vLLM on the CPU"] if options.vllm else []
    print("|".join(["", *columns, ""]), "|".join(["", *["---"] * len(columns), ""]), sep="\n")
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.family or FAMILIES:
            print("|".join(["", *row(name, Path(scratch), vllm=options.vllm), ""]), flush=True)


if __name__ == "__main__":
    main()
