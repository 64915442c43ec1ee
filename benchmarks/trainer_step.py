"""A whole training step for benchmarks/trainer.py: play, score, compare, update, publish.

The environment is a data set of questions about images; each reply is an episode of one turn.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import PIL.Image

from agentrl.algorithms.core.algorithm import load_algorithm
from agentrl.config import Config, EnvConfig, RewardConfig, RolloutConfig, algorithm_config
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.training import env_seeds
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.trainer.training_samples import build_training_samples
from agentrl.types import Episode, Image
from agentrl.weight_sync import published_weights

WORDS = "pick the largest card"


@dataclass(slots=True, kw_only=True, frozen=True)
class Size:
    """Size of a step."""

    pictures: int = 32
    siblings: int = 8
    length: int = 8
    """Maximum number of tokens of a reply; some replies end earlier."""

    @property
    def answers(self) -> int:
        """Number of replies per step."""
        return self.pictures * self.siblings


def both(episode: Episode) -> float:
    """Return a reward that gives every group both outcomes."""
    return float(episode.member % 2)


def half(episode: Episode) -> float:
    """Return the same for every other group; all other rewards are 0."""
    return both(episode) if episode.seed % 2 else 0.0


class Ours:
    """The training steps of a job, all in this process.

    Args:
        folder: folder of the model.
        data: folder to create for the questions.
        shown: picture of each group.
        size: size of a step.
        reward: name of a reward function above.
    """

    def __init__(
        self, folder: Path, data: Path, shown: Sequence[Image], size: Size, reward: str
    ) -> None:
        self._config = job(_questions(data, shown), size, reward)
        self._size = size
        self._loop = asyncio.new_event_loop()
        self._rollouts = RolloutWorker(plan_rollouts(self._config), folder, None)
        self._loop.run_until_complete(self._rollouts.start())
        self._learner = Learner(LearnerSettings.of(self._config), folder)
        self._algorithm = load_algorithm(self._config.algorithm)
        self._steps = 0

    def step(self) -> tuple[float, float]:
        """Make a step; return the seconds of the rollout, and of updating and publishing."""
        return self._loop.run_until_complete(self._step())

    async def _step(self) -> tuple[float, float]:
        started = time.perf_counter()
        self._steps += 1
        config = self._config
        first = (self._steps - 1) * config.rollout.groups
        chosen = [
            env_seeds.training_seeds(config.seed, config.rollout, first + number)
            for number in range(config.rollout.groups)
        ]
        tickets = requests_of_step("train", self._steps, chosen, self._size.siblings)
        played = await self._rollouts.collect(tickets)
        collected = time.perf_counter()
        groups = [
            played[first : first + self._size.siblings]
            for first in range(0, len(played), self._size.siblings)
        ]
        built = build_training_samples(
            groups,
            self._algorithm,
            self._learner.score_tokens,
            max_new_tokens=self._config.rollout.max_new_tokens,
            version=self._steps - 1,
            seed=self._steps,
        )
        await asyncio.to_thread(self._learner.update, built.samples, self._steps)
        path = published_weights.publish(self._learner, self._steps)
        await self._rollouts.engines.load_weights(path, self._steps)
        return collected - started, time.perf_counter() - collected

    def close(self) -> None:
        """Close the engine and the learner."""
        self._loop.run_until_complete(self._rollouts.close())
        self._loop.close()
        self._learner.close()


def job(data: Path, size: Size, reward: str) -> Config:
    """Return our configuration, with TRL's settings wherever both have them."""
    config = Config(
        algorithm=algorithm_config("grpo", aggregate="token_mean"),
        env=EnvConfig(
            id="QA-v0",
            kwargs={"data": str(data)},
            translator_kwargs={"instruct": False, "style": "answer"},
            max_turns=1,
        ),
        rewards=[RewardConfig(function=f"{__file__}:{reward}")],
        rollout=RolloutConfig(
            engine="hf",
            launcher="local",
            groups=size.pictures,
            group_size=size.siblings,
            concurrency=size.answers,
            max_new_tokens=size.length,
            engine_kwargs={"max_batch": size.answers},
        ),
    )
    config.optim.lr = 1e-5
    # TRL uses the sampler's log-probabilities as well.
    config.train.compare_engine = False
    return config


def _questions(data: Path, shown: Sequence[Image]) -> Path:
    data.mkdir()
    rows = []
    for number, image in enumerate(shown):
        PIL.Image.fromarray(image).save(data / f"{number}.png")
        rows.append({"problem": f"<image>{WORDS}", "answer": "1", "images": [f"{number}.png"]})
    file = data / "questions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
