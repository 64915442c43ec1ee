"""`agentrl check env` finds environments and rewards that pay for doing nothing."""

import gymnasium
import pytest

from agentrl.actions.default_translator import SpaceTranslator
from agentrl.check.environments import check_environment
from agentrl.check.environments.doing_nothing import WHAT, check_doing_nothing
from agentrl.check.extensions import findings
from agentrl.config import EnvConfig, RewardConfig


class Switch(gymnasium.Env):
    """The agent has to turn on a light; may be on from the start, or pay for waiting."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(2)

    def __init__(self, starts_on=0.0, pay=0.0, wins=1.0):
        self._starts_on, self._pay, self._wins = starts_on, pay, wins

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.is_on = 0, self.np_random.random() < self._starts_on
        return int(self.is_on), self._info()

    def step(self, action):
        self.steps += 1
        self.is_on |= action == 1
        reward = self._wins * self.is_on + self._pay * (action == 0)
        return int(self.is_on), float(reward), bool(self.is_on), self.steps >= 5, self._info()

    def _info(self):
        return {"metrics": {"success": float(self.is_on)}}


class Waits(SpaceTranslator):
    """Takes a reply without an action for action 0."""

    def no_action(self):
        return 0


class TurnsOn:
    def reply(self, info, rng):
        return "<action>on</action>"


def pays_for_silence(episode):
    return [0.5 * (turn.action is None) for turn in episode.turns]


def fails(episode):
    raise ValueError("no such column")


ENV = f"{__name__}:Switch"
NAMED = {"translator_kwargs": {"names": ["wait", "on"]}}


def found(rewards=(), expert=True, names=NAMED, id=ENV, max_turns=8, **kwargs):
    players = {"expert": f"{__name__}:TurnsOn"} if expert else {}
    config = EnvConfig(id=id, kwargs=kwargs, players=players, max_turns=max_turns, **names)
    return check_doing_nothing(config, [RewardConfig(function=one) for one in rewards], 20)


def test_an_environment_that_pays_only_for_the_task_passes():
    finding = found()
    assert finding.state == "ok", finding
    assert finding.detail.startswith(
        "the action that does nothing: no success; mean reward: noop 0"
    )
    assert finding.detail.endswith("expert 1")


def test_tasks_that_are_done_at_the_start_are_found():
    finding = found(starts_on=1.0)
    assert (finding.state, finding.detail) == (
        "wrong", "8 of 8 episodes of the action that does nothing succeed",
    )  # fmt: skip
    assert "not done yet" in finding.fix


def test_waiting_that_pays_as_much_as_the_experts_play_is_found():
    finding = found(pay=1.0)
    assert finding.state == "wrong"
    assert "it pays as much as the expert's play; mean reward: noop 5" in finding.detail


def test_waiting_that_pays_more_than_random_play_is_only_noted():
    finding = found(pay=0.1, wins=0.0, expert=False)  # surviving longer may be the task
    assert finding.state == "note"
    assert "it pays more than random actions; mean reward: noop 0.5, random" in finding.detail
    assert "agentrl.rewards.form:action" in finding.fix


def test_a_reward_for_replies_without_an_action_is_found_by_its_name():
    silent = {"translator_kwargs": {"names": ["off", "on"]}}
    rewards = ["env_reward", f"{__name__}:pays_for_silence"]
    finding = found(rewards, expert=False, names=silent)
    assert finding.state == "wrong"
    assert finding.detail.startswith("pays_for_silence pays 4 per episode for replies without an")
    assert finding.fix.startswith("let pays_for_silence return 0 or less")
    assert found(["env_reward"], names=silent).state == "ok"


def test_an_environment_that_steps_without_an_action_may_pay_for_surviving():
    waits = {"translator_class": f"{__name__}:Waits"}
    finding = found(expert=False, names=waits, pay=0.1)
    assert finding.state == "ok", finding
    assert "noop 0.5, random" in finding.detail
    finding = found(["env_reward", f"{__name__}:pays_for_silence"], False, waits)
    assert finding.state == "wrong"
    assert finding.detail.startswith("pays_for_silence pays 2.5 per episode for replies without")


def test_a_reward_that_cannot_score_the_episode_is_reported():
    finding = found([f"{__name__}:fails"])
    assert finding.state == "wrong"
    assert (
        "an episode of noop cannot be scored: reward fails: ValueError: no such" in finding.detail
    )


def test_rewards_of_a_server_are_not_asked():
    assert "call a server" in found(["judge"]).detail


@pytest.mark.parametrize(
    ("id", "state", "words"),
    [
        ("FrozenLake-v1", "ok", "noop 0, random"),
        ("CartPole-v1", "ok", "noop 0, random"),  # +1 for each step, none of which is taken
        ("MountainCar-v0", "note", "noop 0, random -8"),
        ("CliffWalking-v1", "note", "it pays more than random actions"),
    ],
)
def test_environments_of_gymnasium(id, state, words):
    finding = found(expert=False, names={}, id=id)
    assert finding.state == state, finding
    assert words in finding.detail


def test_a_penalty_for_silence_makes_step_costs_worth_paying():
    finding = found(["env_reward", "agentrl.rewards.form:action"], False, {}, "MountainCar-v0")
    assert finding.state == "ok", finding


def test_the_check_of_an_environment_includes_it_with_the_jobs_rewards():
    settings = (f"rewards=[{{function: '{__name__}:pays_for_silence'}}]",)
    checked = {one.what: one for one in findings("env", ENV, settings, 20.0)}
    assert checked[WHAT].state == "wrong"
    assert "player random" in checked
    assert "player noop" not in checked  # it need not reply with actions
    quick = check_environment(EnvConfig(id=ENV), 5, 20.0, quick=True)
    assert WHAT not in {one.what for one in quick}
