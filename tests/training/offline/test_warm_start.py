import math
from types import SimpleNamespace

import pytest

from agentrl.config import WarmStartConfig
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.offline import warm_start
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
