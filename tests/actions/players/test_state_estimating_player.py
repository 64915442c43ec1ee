"""Scripted players write state estimates that the true states confirm."""

import asyncio
from dataclasses import asdict

import numpy as np
import pytest

from agentrl.actions.players.state_estimating_player import StateEstimatingPlayer
from agentrl.actions.state_estimates import PREDICTABLE, VISIBLE, true_state
from agentrl.config import EnvConfig
from agentrl.envs.android.number_game.players import NumberGameRandom
from agentrl.envs.android.number_game.rules import NumberGameRules
from agentrl.envs.android.number_game.state_schema import NumberGameStateSchema
from agentrl.envs.android.number_game.translator import NumberGameTranslator
from agentrl.envs.sokoban.state_schema import SokobanStateSchema
from agentrl.envs.toy_text.state_schema import FrozenLakeStateSchema
from agentrl.errors import ConfigError
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.environments.load_translator_and_players import load_player, open_translator
from agentrl.rollout.environments.prompt_messages import instructions_for
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.environments.state_schemas import state_schema_of

SOKOBAN = {"id": "Sokoban-v0", "kwargs": {"size": 6, "boxes": 2, "max_steps": 120}}
FROZEN_LAKE = {
    "id": "FrozenLakeMaps-v0",
    "kwargs": {"is_slippery": False},
    "translator_kwargs": {"names": ["left", "down", "right", "up"]},
}
OWN_SCHEMA = """
class Floor:
    fields = {"floor": "the floor", "room": "the room"}
    predicted = ["floor"]

    def visible(self, info):
        return None

    def expected(self, info, actions):
        return None


class Wrong(Floor):
    predicted = ["height"]
"""


async def play(env, player, seed):
    """Play one episode, and yield the info before, the reply and the info after each turn."""
    runner = EnvRunner(resolve_env(env), None)
    rng = np.random.default_rng(seed)
    step = await runner.reset(seed)
    turns = []
    while not (step.terminated or step.truncated) and len(turns) < 20:
        reply = player.reply(step.info, rng, step.env_observation)
        result = await runner.act(reply)
        assert result.unreadable is None
        turns.append((step.info, reply, result.after.info))
        step = result.after
    runner.close()
    return turns


@pytest.mark.parametrize("player", ["expert", "noisy"])
@pytest.mark.parametrize("settings", [SOKOBAN, FROZEN_LAKE, {**SOKOBAN, "chunk": 3}])
def test_a_players_estimates_are_confirmed_by_the_environment(settings, player):
    settings = dict(settings)
    most = settings.pop("chunk", 1)
    env = EnvConfig(**settings, state_estimation=True, max_actions_per_reply=most)
    scripted = load_player(resolve_env(env), player)
    for seed in range(3):
        for before, reply, after in asyncio.run(play(env, scripted, seed)):
            compact = [str(state).replace(" ", "").replace("'", '"')
                       for state in (before[VISIBLE], after[PREDICTABLE])]  # fmt: skip
            assert reply.startswith(
                f"<observation>{compact[0]}</observation><prediction>{compact[1]}</prediction>"
            )


def test_sokobans_fields_are_cells_of_the_board():
    info = {"board": "#####\n#@$.#\n# $.#\n#####"}
    schema = SokobanStateSchema()
    assert schema.visible(info) == {"player": [1, 1], "boxes": [[1, 2], [2, 2]]}
    # Down to the free cell, then right, which pushes the lower box.
    after = {"player": [2, 2], "boxes": [[1, 2], [2, 3]]}
    assert schema.expected(info, [1, 3]) == after


def test_frozen_lakes_field_is_the_square():
    info = {"map": "SFF\nFHF\nFFG", "player": [0, 1]}
    schema = FrozenLakeStateSchema()
    assert schema.visible(info) == {"player": [0, 1]}
    left, down, right, up = range(4)
    assert schema.expected(info, [right]) == {"player": [0, 2]}
    assert schema.expected(info, [up]) == {"player": [0, 1]}
    assert schema.expected(info, [down, right]) == {"player": [1, 1]}  # it ends in the hole
    assert schema.expected(info, [left, left, down]) == {"player": [1, 0]}


@pytest.mark.parametrize("level", [{}, {"memory": True}, {"timed": 2}, {"moved": True}])
def test_the_number_games_score_is_predicted(level):
    rules = NumberGameRules(seed=3, rounds=4, **level)
    schema, rng = NumberGameStateSchema(), np.random.default_rng(0)
    translator = NumberGameTranslator(**asdict(rules.game.level))
    player = StateEstimatingPlayer(NumberGameRandom(stray=0.0), schema, translator, 1)
    scores = set()
    while not rules.state()["done"]:
        where = rules.touch_targets()
        targets = {
            "cards": [[(box.left + box.right) / 2, (box.top + box.bottom) / 2]
                      for box in where["cards"]],
            "button": [(where["button"].left + where["button"].right) / 2,
                       (where["button"].top + where["button"].bottom) / 2],
        }  # fmt: skip
        info = {**rules.state(), "touch_targets": targets}
        info |= true_state(schema, info)
        reply = player.reply(info, rng)
        rules.touch(*translator.to_action(reply))
        after = rules.state()["score"]
        assert f'<prediction>{{"score":{after}}}</prediction>' in reply
        scores.add(after - info["score"])
    assert {0, -10} <= scores


@pytest.mark.parametrize(
    ("phase", "memory", "names"),
    [
        ("pick", False, {"lamp", "numbers", "score"}),
        ("lamp", True, {"lamp", "score"}),
        ("pick", True, {"numbers", "score"}),
        ("final", False, {"score"}),
    ],
)
def test_the_number_games_fields_are_those_on_the_screen(phase, memory, names):
    info = {"phase": phase, "memory": memory, "lamp": "red", "numbers": [3, 1, 2], "score": 110}
    found = NumberGameStateSchema().visible(info)
    assert found == {name: info[name] for name in names}


def test_the_instructions_name_the_fields():
    env = EnvConfig(**SOKOBAN, state_estimation=True)
    said = instructions_for(env, open_translator(resolve_env(env)))
    assert '<observation>...</observation>, with the keys that apply: "player": your [row' in said
    assert 'Then write "player" and "boxes" after your action in <prediction>' in said


def test_a_turn_without_a_true_state_has_no_estimates(tmp_path):
    (tmp_path / "own.py").write_text(OWN_SCHEMA)
    env = EnvConfig(**SOKOBAN, state_estimation=f"{tmp_path / 'own.py'}:Floor")
    player = load_player(resolve_env(env), "random")
    turns = asyncio.run(play(env, player, 0))
    assert all(VISIBLE not in info and reply.startswith("<action>") for info, reply, _ in turns)


@pytest.mark.parametrize(
    ("env_id", "schema", "message"),
    [
        ("FrozenLake-v1", True, "FrozenLake-v1 has no state schema. It is registered for Frozen"),
        ("Sokoban-v0", "own.py:Wrong", r"own.py:Wrong predicts \['height'\], which `fields` lacks"),
        ("Sokoban-v0", "own.py:OWN", "own.py has no 'OWN'"),
        ("Sokoban-v0", "builtins:dict", "builtins:dict has no `fields`"),
    ],
)
def test_a_missing_or_wrong_schema_is_an_error(tmp_path, monkeypatch, env_id, schema, message):
    (tmp_path / "own.py").write_text(OWN_SCHEMA)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        state_schema_of(EnvConfig(id=env_id, state_estimation=schema))
