"""Compare updates with a bare PyTorch loop, and whole training steps with TRL.

    python benchmarks/trainer.py

There are three workloads for the tiny model: images with several short replies each; one group that
plays 20 turns, as one conversation per episode; and the same with one sample per turn. Each is
trained

- by a bare loop: samples padded to the longest, forward, loss, backward, clip, AdamW;
- by the learner with separate samples (`train.share_prefixes=false`);
- by the learner with its defaults, which compute shared prefixes once.

Then whole steps, from the prompts to the new weights in the engine, are compared with TRL's
GRPOTrainer if it is installed (pip install trl==1.16.0): with a reward that gives every group both
outcomes and, in a separate row, with half of the groups having zero advantage, so that they are
left out of the update. Both sample with transformers. TRL's gradient on the same replies is
compared as well.

All variants alternate within one process; compare ratios, not times. Before that, the memory of
many updates is measured.
"""

import argparse
import contextlib
import ctypes
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np
import torch
from conditions import conditions
from rich.console import Console
from rich.table import Table
from trainer_step import Ours, Size
from trainer_trl import RELEASE, Theirs, relative

from agentrl.config import Config, algorithm_config
from agentrl.policies import tiny_model
from agentrl.policies.models import ModelAdapter, adapter_for, load_model
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.types import Image, TrainingSample


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each kind of update")
    parser.add_argument("--steps", type=int, default=9, help="whole steps of each kind")
    parser.add_argument("--turns", type=int, default=20, help="turns of a conversation")
    parser.add_argument(
        "--updates", type=int, default=400, help="updates over which memory is measured"
    )
    options = parser.parse_args()
    console, turns = Console(), options.turns
    console.print(conditions("torch", "transformers", "trl"), highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = tiny_model.build(Path(scratch) / "model", 0)
        model_adapter = adapter_for(folder)
        # Measure this first: peak memory includes everything that ran before.
        console.print(watched(folder, model_adapter, options.updates))
        works = {
            "32 images, 8 replies of 8 tokens": answers(model_adapter, 32, 8, 8),
            f"8 siblings, {turns} turns, one conversation each": conversations(
                model_adapter, 8, turns
            ),
            f"8 siblings, {turns} turns, a sample for each turn": turn_by_turn(
                model_adapter, 8, turns
            ),
        }
        table = Table(title="One update, median seconds")
        for column in (
            "samples",
            "tokens",
            "bare loop",
            "one by one",
            "ratio",
            "as trees",
            "ratio",
        ):
            table.add_column(column, justify="right" if column != "samples" else "left")
        for name, samples in works.items():
            table.add_row(name, *measured(folder, model_adapter, samples, options.rounds))
        console.print(table)
        console.print(*whole_steps(folder, Path(scratch), options.steps), sep="\n")


def whole_steps(folder: Path, scratch: Path, steps: int) -> list[Table | str]:
    """Compare whole steps and gradients with TRL's."""
    rng = np.random.default_rng(0)
    size = Size()
    shown = [picture(rng) for _ in range(size.pictures)]
    report: list[Table | str] = []
    theirs = None
    # TRL must not find an existing process group when it starts.
    if find_spec("trl") is None:
        report.append(f"TRL is not installed (pip install trl=={RELEASE}), so it is not compared")
    else:
        theirs = Theirs(folder, scratch / "trl", shown, size, steps)
        found = relative(*theirs.gradients())
        report.append(f"relative difference of the gradients on the same replies: {found:.1e}")
    ours = {
        "ours": Ours(folder, scratch / "both", shown, size, "both"),
        "ours, half of the groups have zero advantage": Ours(
            folder, scratch / "half", shown, size, "half"
        ),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ours}

    def step() -> None:
        for name, one in ours.items():
            times[name].append(one.step())

    reference = theirs.run(step)[1:] if theirs else []
    for _ in range(0 if theirs else steps):
        step()
    for one in ours.values():
        one.close()
    name = f"{size.pictures} images, {size.siblings} replies of {size.length} tokens"
    table = Table(title=f"A whole step, {name}; median seconds")
    for column in ("", "rollout", "update", "step", "samples/s", "of TRL's"):
        table.add_column(column, justify="right" if column else "left")
    if reference:
        took = median(reference)
        table.add_row(f"TRL {RELEASE}", "", "", f"{took:.3f}", f"{size.answers / took:.0f}", "1.00")
    for name, pairs in times.items():
        pairs = pairs[1:]  # the first round warms up
        rollout, update = (median(part) for part in zip(*pairs, strict=True))
        took = median(map(sum, pairs))
        ratios = [one / sum(other) for one, other in zip(reference, pairs, strict=bool(reference))]
        ratio = f"{median(ratios):.2f}" if ratios else ""
        table.add_row(
            name, f"{rollout:.3f}", f"{update:.3f}", f"{took:.3f}", f"{size.answers / took:.0f}",
            ratio,
        )  # fmt: skip
    return [*report, table]


def measured(
    folder: Path, model_adapter: ModelAdapter, samples: list[TrainingSample], rounds: int
) -> list[str]:
    """Measure the updates of a workload and return its table row."""
    config = settings()
    alone = settings()
    alone.train.share_prefixes = False
    one, all_ = (
        Learner(LearnerSettings.of(alone), folder),
        Learner(LearnerSettings.of(config), folder),
    )
    bare = bare_loop(folder, model_adapter, samples, config.train.micro_batch_tokens)
    ways: dict[str, Callable[[], object]] = {
        "bare": bare,
        "alone": lambda: one.update(samples, 1),
        "trees": lambda: all_.update(samples, 1),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            if number:  # the first round warms up
                times[name].append(time.perf_counter() - started)
    one.close()
    all_.close()
    took = {name: median(own) for name, own in times.items()}
    tokens = sum(len(sample.token_ids) for sample in samples)
    return [
        f"{tokens:,}", f"{took['bare']:.3f}", f"{took['alone']:.3f}",
        f"{took['alone'] / took['bare']:.2f}", f"{took['trees']:.3f}",
        f"{took['trees'] / took['bare']:.2f}",
    ]  # fmt: skip


def settings() -> Config:
    """Return the settings of both learners: no mismatch correction, like the bare loop."""
    config = Config(algorithm=algorithm_config("grpo"))
    config.optim.lr = 1e-5
    config.train.compare_engine = False
    return config


def bare_loop(
    folder: Path, model_adapter: ModelAdapter, samples: list[TrainingSample], budget: int
) -> Callable[[], None]:
    """Create a plain update in micro-batches of padded rows."""
    model = load_model(folder)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    order = sorted(samples, key=lambda sample: -len(sample.token_ids))
    parts: list[list[TrainingSample]] = []
    for sample in order:
        if parts and (len(parts[-1]) + 1) * len(parts[-1][0].token_ids) <= budget:
            parts[-1].append(sample)
        else:
            parts.append([sample])

    def update() -> None:
        for part in parts:
            width = len(part[0].token_ids)
            ids, mask = torch.zeros(2, len(part), width, dtype=torch.long)
            for row, sample in enumerate(part):
                ids[row, : len(sample.token_ids)] = torch.tensor(sample.token_ids)
                mask[row, : len(sample.token_ids)] = 1
            images = [image for sample in part for image in sample.images]
            logits = model(**model_adapter.forward_inputs(ids, mask, images)).logits
            rows = torch.tensor([r for r, s in enumerate(part) for _ in s.sampled_positions])
            places = torch.tensor([place for sample in part for place in sample.sampled_positions])
            old = torch.tensor([value for sample in part for value in sample.logprobs])
            credit = torch.tensor([value for sample in part for value in sample.advantages])
            table = torch.log_softmax(logits[rows, places - 1].float(), -1)
            ratio = (table[torch.arange(len(places)), ids[rows, places]] - old).exp()
            loss = torch.maximum(-credit * ratio, -credit * ratio.clamp(0.8, 1.2)).sum()
            (loss / sum(len(sample.sampled_positions) for sample in samples)).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()

    return update


def answers(
    model_adapter: ModelAdapter, pictures: int, siblings: int, length: int
) -> list[TrainingSample]:
    """Draw several replies to each of a number of 84 x 140 images."""
    rng = np.random.default_rng(0)
    allowed = words(model_adapter)
    found = []
    for number in range(pictures):
        image = picture(rng)
        prompt = [*rng.choice(allowed, 8), *model_adapter.image_markup(image)]
        for _ in range(siblings):
            found.append(sample(rng, prompt, list(rng.choice(allowed, length)), (image,), number))
    return found


def conversations(model_adapter: ModelAdapter, siblings: int, turns: int) -> list[TrainingSample]:
    """Draw a group of episodes that diverge after the same first screen."""
    rng = np.random.default_rng(0)
    first = picture(rng)
    opening = [*rng.choice(words(model_adapter), 30), *model_adapter.image_markup(first)]
    return [
        conversation(rng, model_adapter, opening, first, turns, number)
        for number in range(siblings)
    ]


def conversation(
    rng: np.random.Generator,
    model_adapter: ModelAdapter,
    opening: Sequence[int],
    first: Image,
    turns: int,
    number: int,
) -> TrainingSample:
    """Draw an episode: a screen and a reply of ten tokens per turn."""
    ids, images, places = list(opening), [first], list[int]()
    for turn in range(turns):
        if turn:
            images.append(picture(rng))
            ids += model_adapter.image_markup(images[-1])
        places += range(len(ids), len(ids) + 10)
        ids += list(rng.choice(words(model_adapter), 10))
    whole = sample(rng, ids[:1], ids[1:], tuple(images), number)
    count = len(places)
    return replace(
        whole,
        sampled_positions=tuple(places),
        logprobs=whole.logprobs[:count],
        old_logprobs=whole.logprobs[:count],
        versions=whole.versions[:count],
        advantages=whole.advantages[:count],
        turns=tuple(k // 10 for k in range(count)),
    )


def turn_by_turn(model_adapter: ModelAdapter, siblings: int, turns: int) -> list[TrainingSample]:
    """Split the same conversations into one sample per turn, with all previous turns as prompt."""
    found = []
    for whole in conversations(model_adapter, siblings, turns):
        for turn in range(turns):
            end = whole.sampled_positions[10 * turn + 9] + 1
            own = slice(10 * turn, 10 * turn + 10)
            found.append(
                replace(
                    whole,
                    token_ids=whole.token_ids[:end],
                    sampled_positions=whole.sampled_positions[own],
                    logprobs=whole.logprobs[own],
                    old_logprobs=whole.logprobs[own],
                    versions=whole.versions[own],
                    advantages=whole.advantages[own],
                    turns=whole.turns[own],
                    images=whole.images[: turn + 1],
                )
            )
    return found


def words(model_adapter: ModelAdapter) -> list[int]:
    """Return the ids that a policy may sample."""
    return [token for token in range(200) if token not in model_adapter.banned_token_ids]


def picture(rng: np.random.Generator) -> Image:
    """Draw an 84 x 140 noise image."""
    return rng.integers(0, 255, (140, 84, 3), dtype=np.uint8)


def sample(
    rng: np.random.Generator,
    prompt: Sequence[int],
    reply: Sequence[int],
    images: tuple[Image, ...],
    number: int,
) -> TrainingSample:
    """Make a sample of one reply; half of the advantages in a group are positive."""
    count = len(reply)
    logprobs = tuple(rng.normal(-5.3, 0.1, count).tolist())
    return TrainingSample(
        token_ids=tuple(int(token) for token in (*prompt, *reply)),
        sampled_positions=tuple(range(len(prompt), len(prompt) + count)),
        logprobs=logprobs,
        old_logprobs=logprobs,
        versions=(0,) * count,
        advantages=(float(rng.choice([-1.0, 1.0])),) * count,
        images=images,
        turns=(0,) * count,
        episode=number,
        reference_logprobs=None,
        values=None,
        returns=None,
        bce_gradient=None,
    )


def watched(folder: Path, model_adapter: ModelAdapter, updates: int) -> str:
    """Measure memory growth and peak memory over many updates.

    Free memory is returned to the system before measuring, because the allocator keeps a varying
    amount of it. Peak memory moves in steps for the same reason.
    """
    learner = Learner(LearnerSettings.of(settings()), folder)
    first, half = min(20, updates), max(1, updates // 2)
    held, most = {}, {}
    for number in range(1, updates + 1):
        learner.update(answers(model_adapter, 4, 8, 8), number)
        if number in (first, half, updates):
            most[number] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            held[number] = resident_mb()
    learner.close()
    grown, risen = held[updates] / held[first] - 1, most[updates] / most[half] - 1
    return (
        f"memory: {held[first]:.1f} MB after {first} updates, {held[updates]:.1f} after {updates}: "
        f"{grown:+.1%}; at most {most[half]:.0f} MB in the first {half}, {most[updates]:.0f} in "
        f"{updates}: {risen:+.1%}"
    )


def resident_mb() -> float:
    """Return the resident memory of this process, without free memory held by its allocator."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


if __name__ == "__main__":
    main()
