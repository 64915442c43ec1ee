"""Tasks are drawn in the right shares, repeat where they can, and resume where they were."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl import config as configuration
from agentrl.check.support.sample_steps import sample_turn, scored_episode
from agentrl.config import Config, RolloutConfig, sampler_defaults
from agentrl.data.seed_to_row import row_of
from agentrl.errors import ConfigError
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.training.env_seeds import first_training_seed
from agentrl.training.sampling.samplers.solve_rate import _signal
from agentrl.training.sampling.task_pool import GroupTask, TaskPool, TaskSet, task_sets
from agentrl.training.sampling.task_sampler import PlayedTask, chosen_tasks, load_sampler

MIXED = (
    TaskSet(env="rows", weight=0.6, count=5),
    TaskSet(env="endless", weight=0.4, count=None),
)


def made(name, sets=MIXED, *, groups=8, seed=0, folder=Path("nowhere"), **own):
    rollout = RolloutConfig(groups=groups, group_size=4)
    config = replace(sampler_defaults(name), **own)
    return load_sampler(config, sets, rollout, run_seed=seed, folder=folder)


def group(task, solved, size=4, name="sample"):
    turn = replace(sample_turn(1, None), info={"metrics": {"success": 1.0}})
    lost = replace(turn, info={"metrics": {"success": 0.0}})
    members = [
        scored_episode([turn], [1.0]) if k < solved else scored_episode([lost], [0.0])
        for k in range(size)
    ]
    named = [
        replace(one, episode=replace(one.episode, id=f"{name}-{k}"))
        for k, one in enumerate(members)
    ]
    return PlayedTask(task=task, episodes=named)


def pool(sets, seed=0):
    return TaskPool(sets, seed, RolloutConfig(groups=64))


@given(
    weights=st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(lambda w: sum(w) > 0.01),
    count=st.integers(1, 64),
    step=st.integers(1, 10_000),
)
@settings(deadline=None)
def test_a_task_is_drawn_as_often_as_its_share_rounded_down_or_up(weights, count, step):
    tasks = pool([TaskSet(env="a", weight=1.0, count=len(weights))])
    shares = np.array(weights) / sum(weights)
    drawn = Counter(tasks.arm(task) for task in tasks.draw(shares, step, count))
    assert sum(drawn.values()) == count
    for arm, share in enumerate(shares):
        assert np.floor(share * count - 1e-6) <= drawn[arm] <= np.ceil(share * count + 1e-6)


def test_the_mean_number_of_draws_is_the_share_of_a_task():
    tasks, shares = pool([TaskSet(env="a", weight=1.0, count=4)]), np.array([0.7, 0.2, 0.07, 0.03])
    drawn = Counter(tasks.arm(t) for step in range(4000) for t in tasks.draw(shares, step, 3))
    found = np.array([drawn[arm] for arm in range(4)])
    # An outsider's test; groups of a step are less random than independent draws.
    assert scipy.stats.chisquare(found, shares * found.sum()).pvalue > 0.01


def test_uniform_sampling_takes_one_seed_after_the_other():
    sampler = made("uniform", [TaskSet(env="", weight=1.0, count=None)], seed=3)
    chosen = [sampler.choose(1, 8), sampler.choose(1, 3, 1), sampler.choose(2, 8)]
    seeds = [task.seed for tasks in chosen for task in tasks]
    assert seeds == list(range(135_000_000, 135_000_019))


@given(
    rows=st.integers(1, 30),
    groups=st.integers(1, 8),
    shuffle=st.sampled_from([None, 0]),
    name=st.sampled_from(["uniform", "success_replay"]),
    data=st.data(),
)
@settings(deadline=None, max_examples=60)
def test_every_row_is_played_once_per_epoch(rows, groups, shuffle, name, data, tmp_path_factory):
    """Whatever is replaced, replayed, played ahead of the learner, or resumed."""
    folder, replays = tmp_path_factory.mktemp("sampler"), name == "success_replay"
    sets = [TaskSet(env="", weight=1.0, count=rows if replays else None)]
    own = {"success_at": 1.0, "revisit": 0.5} if replays else {}

    def play(step):
        """The rows of a step, without those to which success replay returns."""
        found, wanted, played = [], groups, []
        for attempt in range(4):
            before = sampler.tasks.taken[""]
            tasks = chosen_tasks(sampler, step, wanted, attempt)
            new = tasks[: sampler.tasks.taken[""] - before]
            found += [row_of(task.seed, rows, shuffle) for task in new]
            played += tasks
            wanted -= data.draw(st.integers(0, wanted), "kept groups")
            if not wanted:
                break
        return found, [group(task, 1, size=2, name=f"e-{step}") for task in played[:1]]

    sampler, seen = made(name, sets, groups=groups, folder=folder, **own), []
    for step in range(1, 9):
        found, played = play(step)
        seen += found
        sampler.observe(step, played)
        if data.draw(st.booleans(), "resume"):
            for later in range(step + 1, data.draw(st.integers(step, step + 2)) + 1):
                play(later)  # prefetched, and lost
            saved = json.dumps([sampler.state(), sampler.tasks.state(step)])
            sampler = made(name, sets, groups=groups, folder=folder, **own)
            sampler.restore(json.loads(saved)[0])
            sampler.tasks.restore(json.loads(saved)[1])
    for first in range(0, len(seen), rows):
        epoch = seen[first : first + rows]
        assert len(set(epoch)) == len(epoch)
        if shuffle is None and not replays:
            assert epoch == list(range(len(epoch)))


def test_a_checkpoint_without_counts_continues_after_the_seeds_that_its_steps_had():
    sampler = made("uniform", [TaskSet(env="", weight=1.0, count=None)])
    sampler.tasks.restore({}, 5 * 4 * 8)
    assert sampler.choose(6, 8)[0].seed == first_training_seed(0) + 160


def test_the_rows_of_each_data_set_of_a_mixture_are_played_once_per_epoch():
    shares = {"large": (0.7, 50), "small": (0.3, 7)}
    sets = [TaskSet(env=env, weight=weight, count=None) for env, (weight, _) in shares.items()]
    sampler = made("uniform", sets)
    tasks = [task for step in range(1, 40) for task in sampler.choose(step, 8)]
    for env, (weight, rows) in shares.items():
        seen = [row_of(task.seed, rows, 0) for task in tasks if task.env == env]
        assert len(seen) == pytest.approx(weight * len(tasks), abs=40)
        for first in range(0, len(seen), rows):
            epoch = seen[first : first + rows]
            assert len(set(epoch)) == len(epoch)


def test_seeds_of_rows_select_each_row_once():
    tasks = pool([TaskSet(env="a", weight=1.0, count=37)], seed=2)
    seeds = [task.seed for task in tasks.draw(tasks.weights, 1, 37)]
    assert {row_of(seed, 37, shuffle=0) for seed in seeds} == set(range(37))
    assert min(seeds) == first_training_seed(2)


def test_uniform_sampling_plays_every_task_of_a_pool_once_per_epoch():
    sampler = made("uniform", [TaskSet(env="", weight=1.0, count=10)], pool=10, groups=4)
    # A step's second attempt is for groups that replace those of the first.
    both = [
        task.seed for step in range(1, 6) for k in (0, 1) for task in sampler.choose(step, 4, k)
    ]
    epochs = [sorted(both[start : start + 10]) for start in range(0, 40, 10)]
    assert epochs == [sorted(set(both))] * 4
    assert both[:10] != both[10:20]


@given(
    target=st.floats(0.05, 0.95), solved=st.floats(0, 50), failed=st.floats(0, 50)
)  # fmt: skip
@settings(deadline=None, max_examples=30)
def test_the_weight_is_the_mean_over_the_posterior(target, solved, failed):
    posterior = scipy.stats.beta(1 + solved, 1 + failed)
    peak = target ** (2 * target) * (1 - target) ** (2 - 2 * target)
    mean = posterior.expect(lambda p: p ** (2 * target) * (1 - p) ** (2 - 2 * target)) / peak
    assert float(_signal(1 + solved, 1 + failed, target)) == pytest.approx(mean, rel=1e-4)


OBSERVED = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=6), max_size=30
)
"""By step: the arm and the number of solved episodes of each group."""


@given(observed=OBSERVED, floor=st.floats(0.01, 1), target=st.floats(0.05, 0.95))
@settings(deadline=None)
def test_no_task_starves_and_a_restored_sampler_is_equal(observed, floor, target):
    sampler = made("solve_rate", floor=floor, target=target)
    first = first_training_seed(0)
    arms = [
        *(GroupTask(env="rows", seed=first + k) for k in range(5)),
        GroupTask(env="endless", seed=7),
    ]
    for step, groups in enumerate(observed, 1):
        sampler.observe(step, [group(arms[arm], solved) for arm, solved in groups])
    after = len(observed) + 1
    shares = sampler.probabilities(after)
    assert shares.sum() == pytest.approx(1)
    assert (shares >= floor * sampler.tasks.weights * (1 - 1e-9)).all()
    resumed = made("solve_rate", floor=floor, target=target)
    resumed.restore(json.loads(json.dumps(sampler.state())))
    assert (resumed.probabilities(after) == shares).all()
    assert resumed.choose(after, 8) == sampler.choose(after, 8)


def test_half_solved_tasks_are_played_most_until_they_are_forgotten():
    sets = [TaskSet(env="a", weight=1.0, count=3)]
    sampler = made("solve_rate", sets, half_life=5.0)
    tasks = [GroupTask(env="a", seed=first_training_seed(0) + k) for k in range(3)]
    for step in range(1, 11):
        sampler.observe(step, [group(t, s) for t, s in zip(tasks, (0, 2, 4), strict=True)])
    never, half, always = sampler.probabilities(11)
    assert half > 4 * max(never, always)
    assert sampler.probabilities(500) == pytest.approx([1 / 3] * 3, abs=1e-3)


def test_the_rows_of_a_data_set_and_the_seeds_of_a_pool_are_tasks():
    rows = {"env": {"id": "QA-v0", "kwargs": {"data": "arithmetic", "split": "train"}}}
    job = configuration.from_dict({**rows, "sampling": {"name": "solve_rate", "pool": 9}})
    assert [one.count for one in _sets_of(job)] == [9]
    assert [one.count for one in _sets_of(Config())] == [None]


def _sets_of(config):
    return task_sets(config.sampling, plan_rollouts(config).trained, config.mixture_weights())


@pytest.mark.parametrize(
    ("sets", "own", "message"),
    [
        ([TaskSet(env="", weight=1.0, count=None)], {}, "nothing to choose from"),
        ([TaskSet(env="", weight=1.0, count=2_000_000)], {}, "at most 1000000 tasks"),
    ],
)
def test_a_job_without_repeating_tasks_is_refused(sets, own, message):
    with pytest.raises(ConfigError, match=message):
        made("solve_rate", sets, **own)


def test_members_with_seeds_of_their_own_are_refused():
    rollout = RolloutConfig(groups=2, group_size=2, seed_per="episode")
    with pytest.raises(ConfigError, match=r"rollout\.seed_per=group"):
        load_sampler(
            sampler_defaults("solve_rate"), MIXED, rollout, run_seed=0, folder=Path("nowhere")
        )  # fmt: skip


def test_an_environment_that_reports_no_success_needs_a_return():
    played = PlayedTask(
        task=GroupTask(env="", seed=1), episodes=[scored_episode([sample_turn(1, None)], [2.0])]
    )
    with pytest.raises(ConfigError, match=r"sampling\.success_at"):
        played.successes(None)
    assert len(played.successes(2.0)[0]) == 1
    assert played.successes(2.5) == ([], 1)
