"""A step replaces groups with zero advantage, and counts everything it plays."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

from agentrl import config as configuration
from agentrl.config import Config
from agentrl.rollout.collector import CollectionProgress
from agentrl.training import seeds
from agentrl.training.trainer.step_player import StepPlayer
from tests.training.episodes import play


class Groups:
    """Rollouts whose siblings get equal rewards except on some seeds; one was void before."""

    def __init__(self, model_adapter, teaching):
        self.model_adapter, self.teaching, self.greedy = model_adapter, teaching, []

    async def collect(self, requests, player=None, greedy=False):
        if greedy:
            self.greedy += [request.seed for request in requests]
        return [self._played(request) for request in requests]

    def _played(self, request):
        earned = float(request.member) if request.seed in self.teaching else 1.0
        scored = play(self.model_adapter, request.seed, request.member)
        return replace(scored, rewards=(0.0, 0.0, earned))

    async def get_progress(self):
        return CollectionProgress(episodes=4, turns=12, tokens=40, void=Counter(device_error=1))


def player(rollouts, *overrides):
    groups = ["rollout.groups=2", "rollout.group_size=2", "algorithm.filter_groups=true"]
    config = configuration.resolve(Config(), ["env.id=Toy-v0", *groups, *overrides])
    return StepPlayer(config, rollouts, lambda total, note: nullcontext()), config


async def test_void_episodes_of_replaced_groups_are_counted(model_adapter):
    rollouts = Groups(model_adapter, set())
    steps, config = player(rollouts, "algorithm.filter_refills=1")
    first, again = seeds.training_seeds(config, 1, 0), seeds.training_seeds(config, 1, 1)
    rollouts.teaching = {first[1], again[0]}
    played = await steps.play(1)
    assert [group[0].episode.seed for group in played.groups] == [first[1], again[0]]
    assert played.dropped == 1
    assert (played.progress.episodes, played.progress.void["device_error"]) == (8, 2)
    assert played.greedy is None


async def test_greedy_policy_plays_the_seeds_of_the_kept_groups(model_adapter):
    rollouts = Groups(model_adapter, set())
    steps, config = player(rollouts, "algorithm.name=remax", "algorithm.filter_refills=1")
    first, again = seeds.training_seeds(config, 1, 0), seeds.training_seeds(config, 1, 1)
    rollouts.teaching = {first[1], again[0]}
    played = await steps.play(1)
    assert rollouts.greedy == [first[1], again[0]]
    assert len(played.greedy) == len(played.groups) == 2
