import numpy as np
import pytest

from agentrl.envs.android.number_game.app import NumberGameApp
from agentrl.envs.android.number_game.game_state import NumberGamePhase
from agentrl.envs.android.number_game.players import (
    NumberGameExpert,
    NumberGameMediocre,
    NumberGameRandom,
)
from agentrl.envs.android.number_game.translator import NumberGameTranslator
from agentrl.envs.android.phone_game.boxes import to_app
from agentrl.errors import ActionError, ConfigError
from agentrl.types import Observation


def play(player: NumberGameExpert, seed: int, memory: bool = False) -> int:
    """Play one game of ten rounds with at most 100 taps; return the number of right picks."""
    app, rng, translator = NumberGameApp(), np.random.default_rng(seed), NumberGameTranslator()
    app.launch({"seed": str(seed), "memory": str(memory)})
    for _ in range(100):
        if app.state()["done"]:
            break
        x, y = translator.to_action(player.reply(app.state(), rng))
        app.touch(float(x), to_app(float(y)))
    return int(app.state()["right"])


@pytest.mark.parametrize("memory", [False, True])
def test_the_expert_wins_every_round(memory: bool) -> None:
    assert [play(NumberGameExpert(), seed, memory) for seed in range(5)] == [10] * 5


def test_the_mediocre_player_prefers_the_largest_number() -> None:
    player, rng = NumberGameMediocre(skill=0.3), np.random.default_rng(0)
    red = {"numbers": [7, 3, 5], "lamp": "red", "answer": 1}
    chosen = [player.card(red, rng) for _ in range(1000)]
    assert set(chosen) == {0, 1}
    assert 0.25 < np.mean(np.equal(chosen, 1)) < 0.35
    right = [play(player, seed) for seed in range(100)]
    assert 0.48 < np.mean(right) / 10 < 0.59  # 0.3 + 0.7 / 3


def test_the_random_player_picks_a_third_right() -> None:
    right = [play(NumberGameRandom(), seed) for seed in range(100)]
    assert 0.27 < np.mean(right) / 10 < 0.4


def test_a_thought_reads_the_numbers_orders_the_places_and_ends_with_the_choice() -> None:
    state = {"phase": "pick", "lamp": "red", "numbers": [7, 3, 5], "answer": 1}
    reply = NumberGameExpert().reply(state, np.random.default_rng(0))
    thought = "<think>7 3 5 middle right left red middle</think>"
    assert reply == thought + "<action>tap(0.50, 0.70)</action>"


def test_in_the_memory_game_the_lamp_is_noted_before_the_cards_are_turned() -> None:
    state = {"phase": "lamp", "lamp": "red", "numbers": [7, 3, 5], "answer": 1}
    reply = NumberGameExpert().reply(state, np.random.default_rng(0))
    assert reply == "<think>red</think><action>tap(0.50, 0.90)</action>"


def test_in_the_mode_select_a_card_is_named() -> None:
    app, translator = NumberGameApp(), NumberGameTranslator(mode="select")
    app.launch({"seed": "3"})
    reply = NumberGameExpert(mode="select").reply(app.state(), np.random.default_rng(0))
    assert translator.to_action(reply) == app.state()["answer"]
    assert "select" in translator.instructions()


@pytest.mark.parametrize("reply", ["", "<action>select(3)</action>", "<action>tap(1, 2)</action>"])
def test_a_reply_without_an_action_raises_action_error(reply: str) -> None:
    for mode in ("tap", "select"):
        translator = NumberGameTranslator(mode=mode)
        with pytest.raises(ActionError):
            translator.to_action(reply)
        assert translator.no_action() is None


def test_an_unsupported_action_is_rejected() -> None:
    with pytest.raises(ActionError, match="key is not possible here; the actions are tap"):
        NumberGameTranslator().to_action("<action>key(HOME)</action>")


def test_an_unknown_mode_is_a_mistake_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match="tap, select"):
        NumberGameTranslator(mode="swipe")


def test_the_model_is_shown_the_screen_and_never_the_truth() -> None:
    screen = np.zeros((4, 3, 3), np.uint8)
    translator = NumberGameTranslator()
    observation = translator.to_observation(screen, {"answer": 2})
    assert observation == Observation(images=(screen,))
    message = translator.to_message(observation)
    assert (message.text, len(message.images)) == ("<image>", 1)
    assert not NumberGameTranslator(instruct=False).instructions()


@pytest.mark.parametrize("mode", ["tap", "select"])
def test_actions_can_be_said_as_tool_calls(mode: str) -> None:
    app, rng = NumberGameApp(), np.random.default_rng(0)
    translator = NumberGameTranslator(mode=mode, style="tool")
    reply = NumberGameExpert(mode, "tool").reply(app.state(), rng)
    assert "<tool_call>" in reply
    assert "<tool_call>" in translator.instructions()
    action = translator.to_action(reply)
    plain = NumberGameTranslator(mode=mode).to_action(
        NumberGameExpert(mode).reply(app.state(), rng)
    )
    assert np.array_equal(action, plain)


def test_players_with_notes_write_down_the_lamp_before_it_goes_out() -> None:
    rng = np.random.default_rng(0)
    lamp = {"phase": NumberGamePhase.LAMP, "lamp": "green", "numbers": [1, 2, 3]}
    for player in (NumberGameExpert(notes=True), NumberGameMediocre(notes=True)):
        assert player.reply(lamp, rng).startswith("<memory>green</memory><think>green</think>")
    assert "<memory>" not in NumberGameExpert().reply(lamp, rng)
