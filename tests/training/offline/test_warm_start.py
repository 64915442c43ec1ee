import math
from types import SimpleNamespace

import numpy as np
import pytest

from agentrl import config as configuration
from agentrl.config import WarmStartConfig
from agentrl.errors import ConfigError
from agentrl.policies.open_encoder import open_encoder
from agentrl.rollout.environments.load_translator_and_players import load_player
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.training.demonstrations.demonstration_dataset import DemonstrationDataset, load_labeler
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.offline import warm_start
from agentrl.training.plan.job_plan import plan_training
from agentrl.training.stop_signals import Stopping
from tests.training.samples import sample


async def test_learning_rate_rises_then_falls_to_its_final_share():
    rates = []

    def offline_step(samples, lr):
        rates.append(lr)
        return {"skipped": 0.0}

    learner = SimpleNamespace(
        begin_offline=lambda warm: None, offline_step=offline_step, end_offline=lambda: None
    )
    dataset = SimpleNamespace(draw=lambda count: [])
    warm = WarmStartConfig(steps=100, lr=1.0, lr_warmup_steps=10, lr_final_ratio=0.1)
    await warm_start.train_on_demonstrations(
        warm, dataset, learner, lambda *_: None, 60.0, Stopping()
    )
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.1)
    assert rates[9:] == sorted(rates[9:], reverse=True)


async def test_a_skipped_step_does_not_advance_the_learning_rate(
    make_learner, config, model_adapter, monkeypatch
):
    real, rates = Optimizer.step, []

    def step(self, lr, loss):
        return real(self, lr, loss * math.nan if not rates else loss)

    monkeypatch.setattr(Optimizer, "step", step)
    warm = WarmStartConfig(steps=3, batch=1, lr=1.0, lr_warmup_steps=4)
    dataset = SimpleNamespace(draw=lambda count: [sample(model_adapter, 0)] * count)
    learner = make_learner(config)
    await warm_start.train_on_demonstrations(
        warm,
        dataset,
        learner,
        lambda step, metrics: rates.append(metrics["lr"]),
        60.0,
        Stopping(),
    )
    assert rates == pytest.approx([0.0, 0.25, 0.5])  # the first one is skipped


SOKOBAN = {
    "model": {"path": "tiny"},
    "env": {
        "id": "Sokoban-v0", "kwargs": {"size": 5, "max_steps": 6, "observation": "text"},
        "player_kwargs": {"noise": 0.8, "think": False}, "max_turns": 6, "history": "window:1",
    },
    "rollout": {"engine": "hf", "launcher": "local", "max_new_tokens": 24},
    "warm_start": {"player": "noisy", "episodes": 12, "relabel": "expert"},
}  # fmt: skip


def job(*overrides):
    return configuration.resolve(configuration.from_dict(SOKOBAN), overrides)


async def test_the_expert_replies_to_the_screens_that_a_noisy_player_has_reached(tiny_vlm):
    config = job()
    worker = RolloutWorker(plan_rollouts(config), tiny_vlm, None)
    try:
        await worker.start()
        played = await warm_start.play_demonstrations(config.warm_start, {"": 1.0}, 0, worker)
    finally:
        await worker.close()
    encoder, env = open_encoder(config.model, tiny_vlm), resolve_env(config.env)
    expert, labeler = load_player(env, "expert"), load_labeler(env, config.warm_start)
    dataset = DemonstrationDataset(played, config.warm_start, {"": labeler}, encoder, seed=0)
    drawn = {encoder.text(sample.token_ids) for sample in dataset.draw(500)}
    right, as_played = set(), set()
    rng = np.random.default_rng(0)
    for one in played:
        infos = [one.episode.reset_info, *(turn.info for turn in one.episode.turns)]
        for turn, info in zip(one.episode.turns, infos, strict=False):
            prompt = encoder.text(turn.prompt_ids)
            right.add(prompt + expert.reply(info, rng))
            as_played.add(prompt + turn.reply)
    assert len(drawn) > 20
    assert {text.removesuffix("<|im_end|>").strip() for text in drawn} <= right
    assert not as_played <= right  # there were mistakes


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["warm_start.relabel=exprt"], "warm_start.relabel=exprt: .* has no player 'exprt'"),
        (["env.history=concat"], "warm_start.relabel=expert: a whole conversation cannot be"),
        (["warm_start.player=null", "warm_start.recorded=[runs/a]"], "warm_start.player .*null"),
        (
            ["env.players.seeing=tests.training.offline.jobs:SeeingPlayer",
             "warm_start.relabel=seeing"],
            "warm_start.relabel=seeing: .* needs observations",
        ),
    ],
)  # fmt: skip
def test_a_player_that_cannot_relabel_is_refused_before_any_work(overrides, message):
    with pytest.raises(ConfigError, match=message):
        plan_training(job(*overrides), warm_start_pending=True, begins=False)
