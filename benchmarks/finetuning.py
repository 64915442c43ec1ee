"""Compare training on data sets with TRL's trainers, using the same tokens.

    python benchmarks/finetuning.py

Supervised fine-tuning, DPO and a reward model, each with TRL's SFTTrainer, DPOTrainer or
RewardTrainer (pip install trl==1.16.0) and with the learner: the same text model with random
weights, the same examples, whole optimizer steps in float32. Replies in conversations vary widely
in length; both answers of a pair follow the same long prompt, like answers to the same screen. TRL
runs with its defaults, except without gradient checkpointing and bfloat16, which are slower on a
CPU, and without packing, which needs flash-attn. Both alternate within one process; compare the
ratios, not the times. The losses of the first step are compared as well.
"""

import argparse
import contextlib
import io
import logging
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from conditions import conditions
from rich.console import Console
from rich.table import Table

from agentrl.config import Config, DPOConfig, FinetuningConfig, RewardModelConfig, SFTConfig
from agentrl.policies import tiny_model
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.network.backbone import Backbone
from agentrl.training.learner.network.logprob_model import LogprobModel
from agentrl.training.learner.network.reward_model import RewardModel
from agentrl.types import TokenSequence

_LR = 1e-5
_VOCABULARY = 480
Row = dict[str, list[int]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="number of timed steps of each trainer"
    )
    parser.add_argument("--batch", type=int, default=16, help="examples per optimizer step")
    options = parser.parse_args()
    console = Console(width=110)
    console.print(conditions())
    table = Table("trainer", "TRL, s per step", "agentrl, s per step", "ratio", "loss TRL", "loss")
    with tempfile.TemporaryDirectory() as scratch:
        folder = _model(Path(scratch) / "model")
        for name, compare in (("SFT", _sft), ("DPO", _dpo), ("reward model", _reward_model)):
            theirs, ours = compare(folder, Path(scratch) / name.split()[0], options.batch)
            first = theirs(0), ours(0)
            times = [(_timed(theirs, k), _timed(ours, k)) for k in range(1, options.rounds + 1)]
            peer, own = (median(column) for column in zip(*times, strict=True))
            cells = (f"{peer:.3f}", f"{own:.3f}", f"{peer / own:.2f}")
            table.add_row(name, *cells, *(f"{loss:.5f}" for loss in first))
    console.print(table)


def _timed(step: Callable[[int], float], number: int) -> float:
    started = time.perf_counter()
    step(number)
    return time.perf_counter() - started


def _model(folder: Path) -> Path:
    """Build a text model of 5 million parameters with the tiny model's tokenizer."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tiny = tiny_model.build(folder.with_name("tiny"), 0)
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).write_bytes((tiny / name).read_bytes())
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=512, hidden_size=256, intermediate_size=768, num_hidden_layers=6,
        num_attention_heads=4, num_key_value_heads=2, pad_token_id=0,
    )  # fmt: skip
    with _quietly():
        Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def _lengths(random: np.random.Generator, count: int) -> list[int]:
    """Draw lengths of replies: most are short, a few are long."""
    return [int(length) for length in np.clip(random.lognormal(3.5, 0.9, count), 8, 300)]


def _ids(random: np.random.Generator, count: int) -> list[int]:
    return [int(token) for token in random.integers(10, _VOCABULARY, count)]


def _sequence(prompt: Sequence[int], reply: Sequence[int], index: int, last: bool) -> TokenSequence:
    """Make a sequence that trains on all tokens of a reply, or with `last` reads only the last."""
    whole = (*prompt, *reply)
    places = range(len(whole) - 1 if last else len(prompt), len(whole))
    zeros = (0,) * len(places)
    return TokenSequence(
        token_ids=whole, sampled_positions=tuple(places), logprobs=(0.0,) * len(places),
        versions=zeros, turns=zeros, images=(), episode=index,
    )  # fmt: skip


def _learner(
    folder: Path, settings: FinetuningConfig, wrap: type[Backbone] = LogprobModel
) -> Learner:
    learner = Learner(LearnerSettings.of(Config()), folder, wrap=wrap)
    learner.begin_offline(settings)
    return learner


def _trainer(
    kind: str, folder: Path, scratch: Path, rows: Sequence[Mapping[str, Any]], **more: Any
) -> Any:
    """Create one of TRL's trainers, to be called step by step rather than by its own loop."""
    import trl
    from datasets import Dataset
    from transformers import AutoTokenizer

    arguments = getattr(trl, f"{kind}Config")(
        output_dir=str(scratch), use_cpu=True, bf16=False, gradient_checkpointing=False,
        report_to="none", max_length=None, learning_rate=_LR, adam_beta2=0.99,
        per_device_train_batch_size=len(rows),
    )  # fmt: skip
    with _quietly():
        trainer = getattr(trl, f"{kind}Trainer")(
            args=arguments,
            train_dataset=Dataset.from_list(list(rows)),
            processing_class=AutoTokenizer.from_pretrained(folder),
            **more,
        )
        trainer.create_optimizer_and_scheduler(1000)
    return trainer


def _step_of(trainer: Any, rows: Callable[[int], list[Row]]) -> Callable[[int], float]:
    """Return a function that makes an optimizer step like the trainer's own loop."""

    def step(number: int) -> float:
        batch = trainer.data_collator(rows(number))
        trainer.model.train()
        with _quietly():
            loss = trainer.compute_loss(trainer.model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        return float(loss.detach())

    return step


def _sft(folder: Path, scratch: Path, batch: int) -> tuple[Callable[[int], float], ...]:
    def pairs(number: int) -> list[tuple[list[int], list[int]]]:
        random = np.random.default_rng(number)
        return [(_ids(random, 40), _ids(random, length)) for length in _lengths(random, batch)]

    def rows(number: int) -> list[Row]:
        return [
            {"input_ids": [*prompt, *reply], "labels": [-100] * len(prompt) + reply}
            for prompt, reply in pairs(number)
        ]

    trainer = _trainer("SFT", folder, scratch, rows(0), model=str(folder))
    learner = _learner(folder, SFTConfig())

    def step(number: int) -> float:
        found = [
            _sequence(prompt, reply, k, False) for k, (prompt, reply) in enumerate(pairs(number))
        ]
        return learner.offline_step(found, _LR)["loss"]

    return _step_of(trainer, rows), step


def _answers(number: int, batch: int) -> list[tuple[list[int], list[int], list[int]]]:
    """Draw prompts of 300 tokens, about one screen, with two answers each."""
    random = np.random.default_rng(number)
    lengths = zip(_lengths(random, batch), _lengths(random, batch), strict=True)
    return [(_ids(random, 300), _ids(random, a), _ids(random, b)) for a, b in lengths]


def _compared(number: int, batch: int, *, last: bool) -> list[TokenSequence]:
    return [
        _sequence(prompt, answer, k, last)
        for k, (prompt, *both) in enumerate(_answers(number, batch))
        for answer in both
    ]


def _dpo(folder: Path, scratch: Path, batch: int) -> tuple[Callable[[int], float], ...]:
    def rows(number: int) -> list[Row]:
        names = ("prompt_ids", "chosen_ids", "rejected_ids")
        return [dict(zip(names, row, strict=True)) for row in _answers(number, batch)]

    # The constructor requires a data set to encode, which is not used.
    text = [{"prompt": "a", "chosen": "b", "rejected": "c"}] * batch
    trainer = _trainer("DPO", folder, scratch, text, model=str(folder))
    learner = _learner(folder, DPOConfig())
    return _step_of(trainer, rows), lambda number: learner.offline_step(
        _compared(number, batch, last=False), _LR
    )["loss"]


def _reward_model(folder: Path, scratch: Path, batch: int) -> tuple[Callable[[int], float], ...]:
    from transformers import AutoModelForSequenceClassification

    def rows(number: int) -> list[Row]:
        return [
            {"chosen_ids": prompt + better, "rejected_ids": prompt + worse}
            for prompt, better, worse in _answers(number, batch)
        ]

    with _quietly():
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
        model.save_pretrained(scratch / "start")
    for file in folder.iterdir():
        if not (scratch / "start" / file.name).exists() and file.suffix == ".json":
            (scratch / "start" / file.name).write_bytes(file.read_bytes())
    trainer = _trainer("Reward", folder, scratch, rows(0), model=model)
    learner = _learner(scratch / "start", RewardModelConfig(), RewardModel)
    return _step_of(trainer, rows), lambda number: learner.offline_step(
        _compared(number, batch, last=True), _LR
    )["loss"]


@contextlib.contextmanager
def _quietly() -> Any:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


if __name__ == "__main__":
    main()
