"""TRL's GRPOTrainer on the same prompts, for benchmarks/trainer.py."""

import contextlib
import io
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from trainer_step import WORDS, Size

from agentrl.config import Config, algorithm_config
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.types import Image, Message, TrainingSample

RELEASE = "1.16.0"
"""TRL release that this code is written for."""
_PARTS = 4
"""Number of gradient accumulation steps; the fastest of 1, 4 and 8."""


class Theirs:
    """TRL's trainer with our settings.

    Args:
        folder: folder of the model.
        scratch: folder for TRL's output.
        shown: picture of each group.
        size: size of a step.
        steps: number of steps that `run` makes.
    """

    # Typed as Any because TRL may not be installed.
    def __init__(
        self, folder: Path, scratch: Path, shown: Sequence[Image], size: Size, steps: int
    ) -> None:
        import datasets
        import PIL.Image
        import transformers

        with _quietly():
            from trl import GRPOConfig, GRPOTrainer

            self._folder, self._size, self._shown = folder, size, shown
            self._rows = [
                {
                    "prompt": [{"role": "user", "content": WORDS}],
                    "image": PIL.Image.fromarray(image),
                }
                for image in shown
            ]
            self._after: list[Callable[[], object]] = []
            self._times: list[float] = []
            callback: Any = transformers.TrainerCallback()
            callback.on_step_end = self._on_step_end
            arguments = GRPOConfig(
                output_dir=str(scratch),
                per_device_train_batch_size=size.answers // _PARTS,
                gradient_accumulation_steps=_PARTS,
                num_generations=size.siblings,
                max_completion_length=size.length,
                max_steps=steps,
                learning_rate=1e-5,
                lr_scheduler_type="constant",
                adam_beta2=0.99,
                use_cpu=not torch.cuda.is_available(),
                # TRL's defaults save memory but are slower.
                bf16=False,
                gradient_checkpointing=False,
                report_to=[],
                logging_strategy="no",
                save_strategy="no",
                disable_tqdm=True,
            )
            self._trainer: Any = GRPOTrainer(
                model=str(folder),
                reward_funcs=_both,
                args=arguments,
                train_dataset=datasets.Dataset.from_list(self._rows),
                callbacks=[callback],
            )

    def run(self, after: Callable[[], object]) -> list[float]:
        """Train and return the seconds of each step; `after` runs after each step, untimed."""
        self._after = [after]
        self._times = []
        self._begun = time.perf_counter()
        with _quietly():
            self._trainer.train()
        return self._times

    def _on_step_end(self, *_: object, **__: object) -> None:
        self._times.append(time.perf_counter() - self._begun)
        for other in self._after:
            other()
        self._begun = time.perf_counter()

    def gradients(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return both gradients by parameter on replies sampled by TRL; call before `run`."""
        trainer, arguments = self._trainer, self._trainer.args
        trainer.current_gradient_accumulation_steps = arguments.gradient_accumulation_steps
        trainer.model.train()
        rows = [row for row in self._rows for _ in range(self._size.siblings)]
        with _quietly():
            inputs = trainer._generate_and_score_completions(rows)
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        seen = ("pixel_values", "image_grid_thw", "mm_token_type_ids", "num_images")
        with torch.no_grad():
            logprobs, *_ = trainer._get_per_token_logps_and_entropies(
                trainer.model,
                ids,
                mask,
                inputs["completion_ids"].shape[1],
                **{name: inputs[name] for name in seen},
            )
        trainer.compute_loss(trainer.model, inputs).backward()
        theirs = {n: p.grad.clone() for n, p in trainer.model.named_parameters()}
        trainer.model.zero_grad()
        shown = [image for image in self._shown for _ in range(self._size.siblings)]
        question = Message(role="user", text=f"<image>{WORDS}", images=(shown[0],))
        own = Conversation(ChatEncoder(self._folder), "").observe(question).token_ids
        assert tuple(inputs["prompt_ids"][0].tolist()) == own, "both read the same prompts"
        samples = [
            _sample(prompt[own.bool()], reply[said.bool()], chances, float(credit), image, number)
            for number, (prompt, own, reply, said, chances, credit, image) in enumerate(
                zip(
                    inputs["prompt_ids"],
                    inputs["prompt_mask"],
                    inputs["completion_ids"],
                    inputs["completion_mask"],
                    logprobs,
                    inputs["advantages"],
                    shown,
                    strict=True,
                )
            )
        ]
        return theirs, _ours(self._folder, samples)


def relative(theirs: dict[str, Tensor], ours: dict[str, Tensor]) -> float:
    """Return |theirs - ours| / |theirs| over all parameters."""
    assert theirs.keys() == ours.keys()
    pairs = [(theirs[name].double(), ours[name].double()) for name in theirs]
    apart = sum((one - other).square().sum() for one, other in pairs)
    size = sum(one.square().sum() for one, _ in pairs)
    return float((apart / size) ** 0.5)


def _ours(folder: Path, samples: Sequence[TrainingSample]) -> dict[str, Tensor]:
    config = Config(algorithm=algorithm_config("grpo", aggregate="token_mean"))
    config.train.compare_engine = False
    learner = Learner(LearnerSettings.of(config), folder)
    # TRL never samples an image token, but its loss normalizes over them.
    learner._policy.module.banned.zero_()
    found: dict[str, Tensor] = {}

    def keep(lr: float, loss: Tensor) -> tuple[float, float]:
        for name, parameter in learner._policy._named().items():
            gradient: Any = parameter.grad
            found[name] = gradient.full_tensor().clone()
        return float(loss), 0.0

    learner._models.optimizer.step = keep  # type: ignore[method-assign]
    learner.update(samples, 0)
    learner.close()
    return found


def _sample(
    prompt: Tensor, reply: Tensor, logprobs: Tensor, credit: float, image: Image, number: int
) -> TrainingSample:
    first, count = len(prompt), len(reply)
    sampled = tuple(logprobs[:count].tolist())
    return TrainingSample(
        token_ids=(*prompt.tolist(), *reply.tolist()),
        sampled_positions=tuple(range(first, first + count)),
        logprobs=sampled,
        old_logprobs=sampled,
        versions=(0,) * count,
        advantages=(credit,) * count,
        images=(image,),
        turns=(0,) * count,
        episode=number,
        reference_logprobs=None,
        values=None,
        returns=None,
        bce_gradient=None,
    )


def _both(completions: Sequence[object], **_: object) -> list[float]:
    """Like `trainer_step.both`, for TRL's arguments; a group's replies are adjacent."""
    return [float(number % 2) for number in range(len(completions))]


@contextlib.contextmanager
def _quietly() -> Any:
    """Silence TRL's progress bar and warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
