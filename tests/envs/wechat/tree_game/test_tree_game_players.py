import numpy as np
import pytest

from agentrl.envs.wechat.tree_game.env import TreeGameTranslator
from agentrl.envs.wechat.tree_game.players import TreeGameExpert, TreeGameMediocre, TreeGameRandom
from agentrl.rewards import tree_game
from agentrl.types import Episode, Outcome, Turn
from tests.envs.wechat.tree_game.tree_app import launched, play, tap


def test_the_expert_has_no_regret_in_any_level() -> None:
    levels = [{}, {"total": "hidden"}, {"noise": 50}, {"chops": 5}]
    for level in levels:
        ends = [play(TreeGameExpert(), seed, **level) for seed in range(5)]
        assert [end["regret"] for end in ends] == [0.0] * 5
        assert all(end["done"] for end in ends)


def test_random_play_has_half_the_regret_range_and_mostly_replacing_less() -> None:
    def regret(player: TreeGameExpert | TreeGameRandom) -> float:
        return float(np.mean([play(player, seed)["regret"] for seed in range(60)]))

    assert 0.4 < regret(TreeGameRandom()) < 0.6
    assert 0.3 < regret(TreeGameMediocre()) < 0.48
    assert 0.4 < regret(TreeGameMediocre(skill=0.0)) < 0.6


def test_reasoning_repeats_the_popup_whatever_is_chosen() -> None:
    app, rng = launched(4), np.random.default_rng(0)
    assert TreeGameExpert().reply(app.state(), rng).startswith("<think>next</think>")
    tap(app, "chop")
    way = "up" if app.state()["change"] > 0 else "down"
    for player in (TreeGameExpert(), TreeGameMediocre(skill=0.0)):
        assert player.reply(app.state(), rng).startswith(f"<think>{way}</think>")
    hidden = {**app.state(), "total": "hidden"}
    differences = " ".join(map(str, app.state()["differences"]))
    assert TreeGameExpert().reply(hidden, rng).startswith(f"<think>{differences} {way}</think>")


@pytest.mark.parametrize("style", ["tag", "tool"])
def test_calls_are_formatted_and_parsed_in_both_styles(style: str) -> None:
    words, rng = TreeGameTranslator(mode="calls", style=style), np.random.default_rng(0)
    app = launched(4)
    assert words.to_action(TreeGameExpert("calls", style).reply(app.state(), rng)) == 0
    tap(app, "chop")
    chosen = words.to_action(TreeGameExpert("calls", style).reply(app.state(), rng))
    assert chosen == {"replace": 1, "decompose": 2}[app.state()["optimal"]]
    assert words.to_action(TreeGameRandom(mode="calls", style=style).reply(app.state(), rng)) in (
        1,
        2,
    )
    assert "chop" in words.instructions()


def test_the_prompt_states_the_formula_and_the_level() -> None:
    plain = TreeGameTranslator().instructions()
    assert "4 attack + health + 3 defence + 2 agility + 2 dodge" in plain
    assert "10 chops" in plain
    assert "Answer <action>tap(x, y)</action>, x and y from 0.00" in plain
    hidden = TreeGameTranslator(total="hidden", noise=20, chops=1).instructions()
    assert "not shown" in hidden
    assert "wrong way" in hidden
    assert "one chop" in hidden
    assert TreeGameTranslator(instruct=False).instructions() == ""


def turn(reward: float, regret: float, *, changed: bool = True, error: str | None = None) -> Turn:
    return Turn(
        prompt_ids=(), reply_ids=(), reply_logprobs=(), reply_versions=(), reply="", images=(),
        shown="", frames=(), action=None, parse_error=error, env_reward=reward, state_key=None,
        info={"changed": changed, "regret": regret}, timings={},
    )  # fmt: skip


def test_rewards_are_a_number_a_turn() -> None:
    turns = (turn(0.0, 0.4), turn(0.5, 0.2), turn(0.0, 0.2, changed=False), turn(0, 0.2, error="?"))
    episode = Episode(
        id="e", env_id="TreeGame-v0", seed=1, group="g", member=0, reset_info={}, turns=turns,
        instructions="", final_shown="", final_frames=(),
        outcome=Outcome.TERMINATED, error=None, device=None,
    )  # fmt: skip
    assert tree_game.outcome(episode) == [0.0, 0.5, 0.0, 0.0]
    assert tree_game.regret(episode) == [0.0, 0.0, 0.0, -0.2]
    assert tree_game.format(episode) == [0.0, 0.0, -0.5, -0.5]
    assert tree_game.format(episode, cost=0.1) == [0.0, 0.0, -0.1, -0.1]
