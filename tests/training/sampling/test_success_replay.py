"""Old successes are kept within bounds, come back whole, and are weighted correctly."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl import config as configuration
from agentrl.algorithms.core.algorithm import load_algorithm
from agentrl.algorithms.core.policy_loss import LossInputs, PolicyLoss, TokenLoss
from agentrl.config import Config, RolloutConfig, algorithm_config
from agentrl.errors import ConfigError
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.training.batching.episode_splitting import split_into_sequences
from agentrl.training.learner.micro_batches import single_batch
from agentrl.training.plan.job_plan import check_scripted_play
from agentrl.training.sampling.replay_buffer import ReplayBuffer
from agentrl.training.sampling.task_pool import GroupTask, TaskSet
from agentrl.training.sampling.task_sampler import PlayedTask, load_sampler
from agentrl.training.trainer.training_samples import build_training_samples
from agentrl.types import ScoredEpisode
from tests.training.episodes import play

TASK = GroupTask(env="", seed=105_000_000)


def named(scored: ScoredEpisode, name: str, rewards=(0.0, 0.0, 1.0)) -> ScoredEpisode:
    return replace(scored, episode=replace(scored.episode, id=name), rewards=rewards)


@pytest.fixture
def scored(model_adapter) -> ScoredEpisode:
    return named(play(model_adapter, 1, 0), "train-00001-g000-m00")


def sampler_in(folder, **own):
    config = configuration.from_dict(
        {"sampling": {"name": "success_replay", "success_at": 1.0, **own}}
    )
    return load_sampler(
        config.sampling, [TaskSet(env="", weight=1.0, count=None)], RolloutConfig(groups=4),
        run_seed=0, folder=folder,
    )  # fmt: skip


def test_an_episode_comes_back_with_every_number_and_pixel(tmp_path, scored):
    buffer = ReplayBuffer(tmp_path / "new", 10, 1e9)
    scored = replace(scored, components={"a": (0.0, 0.0, 2.0)}, weights={"a": 0.5})
    buffer.add(TASK, scored, 3)
    again = buffer.load(scored.episode.id)
    assert again.replayed
    assert again.rewards == scored.rewards
    assert again.by_function() == scored.by_function() == {"a": (0.5, 2.0)}
    for old, new in zip(scored.episode.turns, again.episode.turns, strict=True):
        assert (old.prompt_ids, old.reply_ids) == (new.prompt_ids, new.reply_ids)
        assert (old.reply_logprobs, old.reply_versions) == (new.reply_logprobs, new.reply_versions)
        assert all(map(np.array_equal, old.images, new.images))
        assert len(old.images) == len(new.images)
    # What several prompts contain is one array, as before: prefixes are recognized by it.
    assert again.episode.turns[0].images[0] is again.episode.turns[2].images[0]


ACTIONS = st.lists(st.sampled_from(["add", "save", "kill"]), max_size=25)


@given(actions=ACTIONS)
@settings(deadline=None, max_examples=25)
def test_a_killed_job_finds_every_file_that_its_checkpoint_names(
    actions, tmp_path_factory, model_adapter
):
    scored, folder = play(model_adapter, 1, 0), tmp_path_factory.mktemp("buffer")
    buffer, complete, latest, number = ReplayBuffer(folder, 3, 1e9), [], [], 0
    for action in actions:
        if action == "add":
            number += 1
            buffer.add(TASK, named(scored, f"e-{number}"), number)
            assert len(buffer) <= 3
        elif action == "save":
            # A checkpoint is complete, at the latest, when the next one is begun.
            complete, latest = latest, json.loads(json.dumps(buffer.state()))
        else:
            for state in (complete, latest):
                names = {entry[0] for entry in state}
                assert names <= {file.stem for file in folder.glob("*.npz")}
            buffer = ReplayBuffer(folder, 3, 1e9)
            buffer.restore(complete)
            latest = complete
            assert [one.id for one in buffer.all()] == [entry[0] for entry in complete]
            assert all(buffer.load(one.id) is not None for one in buffer.all())


def test_the_buffer_is_bounded_in_bytes_and_survives_a_damaged_file(tmp_path, scored, caplog):
    buffer = ReplayBuffer(tmp_path, 100, 1e9)
    buffer.add(TASK, scored, 1)
    small = ReplayBuffer(tmp_path / "small", 100, 2.5 * buffer.bytes)
    for number in range(5):
        small.add(TASK, named(scored, f"e-{number}"), number)
    assert [one.id for one in small.all()] == ["e-3", "e-4"]
    (tmp_path / "small" / "e-4.npz").write_bytes(b"half of it")
    assert small.load("e-4") is None
    assert "cannot be read" in caplog.text
    assert len(small) == 1


def test_only_groups_without_a_success_get_old_ones_that_are_young_enough(tmp_path, scored):
    sampler = sampler_in(tmp_path, max_age=5)
    lost = named(scored, "train-00001-g000-m01", (0.0, 0.0, 0.0))
    sampler.observe(1, [PlayedTask(task=TASK, episodes=[lost, scored])])
    failed = PlayedTask(task=TASK, episodes=[lost])
    assert [one.episode.id for one in sampler.replay(2, failed)] == [scored.episode.id]
    assert not sampler.replay(2, PlayedTask(task=TASK, episodes=[lost, scored]))
    assert not sampler.replay(2, replace(failed, task=GroupTask(env="", seed=7)))
    assert sampler.replay(6, failed)
    assert not sampler.replay(7, failed)
    assert sampler.metrics()["replay/episodes"] == 2
    assert TASK in [task for step in range(2, 7) for task in sampler.choose(step, 4)]
    assert TASK not in [task for step in range(7, 40) for task in sampler.choose(step, 4)]
    sampler.observe(2, [PlayedTask(task=TASK, episodes=[scored, scored])])  # solved by all
    assert not sampler.replay(3, failed)


def logprobs_of(learner, item) -> torch.Tensor:
    """[N] of the sampled tokens, by the learner's current policy; carries the gradient."""
    batch = single_batch([item], learner._models.model_adapter)
    return learner._policy.module(batch, 1.0).logprobs


def sampled_by(learner, scored: ScoredEpisode, shift: float = 0.0) -> ScoredEpisode:
    """The episode as if the current policy had sampled it, each token e^shift times as likely."""
    found = []
    for sequence in split_into_sequences(scored.episode, 0):
        with torch.no_grad():
            found += (logprobs_of(learner, sequence) + shift).tolist()
    turns, start = [], 0
    for turn in scored.episode.turns:
        end = start + len(turn.reply_ids)
        turns.append(replace(turn, reply_logprobs=tuple(found[start:end])))
        start = end
    return replace(scored, episode=replace(scored.episode, turns=tuple(turns)))


def gradient_by_hand(learner, samples) -> float:
    """The norm of the gradient of the mean of -A pi / pi_behavior over all tokens, by torch."""
    losses = [
        -torch.tensor(one.advantages)
        * (logprobs_of(learner, one) - torch.tensor(one.logprobs)).exp()
        for one in samples
    ]
    weights = [p for p in learner._policy.module.parameters() if p.requires_grad]
    slopes = torch.autograd.grad(torch.cat(losses).mean(), weights, allow_unused=True)
    squares = [slope.double().square().sum() for slope in slopes if slope is not None]
    return float(torch.stack(squares).sum().sqrt())


@pytest.mark.parametrize("shift", [0.0, 0.7, -0.1])
def test_old_tokens_count_by_the_ratio_to_the_policy_that_sampled_them(
    make_learner, model_adapter, tmp_path, shift
):
    config = Config(algorithm=algorithm_config("grpo"))
    assert config.algorithm.importance_correction.kind == "none"
    config.algorithm.minibatch, config.algorithm.epochs = None, 1
    config.algorithm.aggregate, config.optim.lr = "token_mean", 1e-6
    learner = make_learner(config)
    lost, other, won = (
        replace(sampled_by(learner, play(model_adapter, 1, member)), rewards=(0.0, 0.0, reward))
        for member, reward in enumerate((0.0, 0.0, 1.0))
    )
    buffer = ReplayBuffer(tmp_path, 1, 1e9)
    buffer.add(TASK, named(sampled_by(learner, won, shift), "old"), 1)
    built = build_training_samples(
        [[lost, other, buffer.load("old")]], load_algorithm(config.algorithm), lambda _: [],
        version=50, seed=0, max_new_tokens=config.rollout.max_new_tokens,
    )  # fmt: skip
    assert {one.episode for one in built.samples if one.replayed} == {2}
    with torch.no_grad():
        for one in built.samples:
            ratio = (logprobs_of(learner, one) - torch.tensor(one.logprobs)).exp()
            by_hand = np.exp(-shift) if one.replayed else 1.0  # pi / pi_behavior
            np.testing.assert_allclose(ratio.numpy(), by_hand, rtol=1e-3)
    rewards = torch.tensor([0.0, 0.0, 1.0])  # the baseline is that of new and old members
    expected = (rewards - rewards.mean()) / rewards.std()
    for one in built.samples:
        assert one.advantages[0] == pytest.approx(float(expected[one.episode]), rel=1e-3)
    by_hand = gradient_by_hand(learner, built.samples)
    if shift == 0:  # the policy that sampled them is the current one: as if they were new
        new = [replace(one, replayed=False) for one in built.samples]
        assert gradient_by_hand(learner, new) == by_hand
    assert learner.update(built.samples, 1)["grad_norm"] == pytest.approx(by_hand, rel=1e-3)


def test_staleness_of_replayed_tokens_is_bounded_by_the_sampler_alone(model_adapter):
    config = Config(algorithm=algorithm_config("grpo", max_staleness=2))
    members = [
        named(play(model_adapter, 1, k), f"e-{k}", (0.0, 0.0, reward))
        for k, reward in enumerate((0.0, 1.0))
    ]
    for replayed, episodes in ((False, set()), (True, {1})):
        group = [replace(members[0]), replace(members[1], replayed=replayed)]
        built = build_training_samples(
            [group], load_algorithm(config.algorithm), lambda _: [], version=9, seed=0,
            max_new_tokens=config.rollout.max_new_tokens,
        )  # fmt: skip
        assert {one.episode for one in built.samples} == episodes
        assert built.metrics["lag"] == 9


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["sampling.settings={floor: 0.2}"], r"sampling\.settings\.floor: uniform has no such"),
        (["sampling.tasks=success_replay"], "must be a sampler that does not replay"),
        (["sampling.revisit=1.5"], r"sampling\.revisit=1\.5"),
        (["rollout.seed_per=episode"], r"rollout\.seed_per=group"),
        ([f"algorithm.loss={__file__}:Unweighted"], "does not weight tokens by their probability"),
    ],
)
def test_settings_that_cannot_work_are_refused(overrides, message):
    job = {"env": {"id": "Sokoban-v0", "kwargs": {"size": 5}}, "sampling": "success_replay"}
    with pytest.raises(ConfigError, match=message):
        check_scripted_play(
            plan_rollouts(configuration.resolve(configuration.from_dict(job), overrides))
        )


class Unweighted(PolicyLoss):
    about, source = "the plain policy gradient", "arXiv:1604.06778"

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        loss = -inputs.advantages * inputs.logprobs
        return TokenLoss(loss=loss, clipped=torch.zeros_like(loss).bool())
