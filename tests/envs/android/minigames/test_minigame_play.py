import importlib.util
import itertools
import json
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from agentrl import user_code
from agentrl.env_registry import find_env, make_translator
from agentrl.envs.android.minigames.flip import players as flip_players
from agentrl.envs.android.minigames.flip.rules import Flip
from agentrl.envs.android.phone_game.boxes import to_app
from tests.envs.android.minigames.short_games import SHORT, extras, new_app, player

IDS = list(SHORT)
SIZES = [(720, 1231), (333, 777), (90, 154), (400, 230)]


def play(id: str, name: str, seed: int, turns: int = 400, **level: str) -> list[dict[str, Any]]:
    """Return the states of a game that a scripted player plays by touches, without a phone."""
    app, rng = new_app(id), np.random.default_rng(seed)
    translator, who = make_translator(id), player(id, name)
    app.launch({**extras(id, seed), **level})
    states = [app.state()]
    while not states[-1]["done"] and len(states) <= turns:
        action = translator.to_action(who.reply(states[-1], rng))
        x1, y1, x2, y2 = [float(share) for share in (*action, *action)][:4]
        if (x1, y1) == (x2, y2):
            app.touch(x1, to_app(y1))
        else:
            app.swipe(x1, to_app(y1), x2, to_app(y2), 300)
        states.append(app.state())
    return states


@pytest.mark.parametrize(
    ("id", "level"),
    [
        ("Game2048-v0", {"goal": "64"}),
        ("Timberman-v0", {"goal": "30"}),
        ("Snake-v0", {"goal": "10"}),
        ("Flip-v0", {"pairs": "8"}),
        ("FlappyBird-v0", {"goal": "10"}),
        ("SpaceFighter-v0", {"length": "60"}),
    ],
)
def test_the_expert_wins_and_every_touch_of_its_does_something(
    id: str, level: dict[str, str]
) -> None:
    for seed in range(3):
        states = play(id, "expert", seed, **level)
        assert states[-1]["success"], (seed, states[-1])
        for before, after in itertools.pairwise(states):
            assert before != after


@pytest.mark.parametrize("id", IDS)
def test_a_player_has_the_default_skill_of_its_kind_unless_it_is_given_one(id: str) -> None:
    expert, mediocre = (
        user_code.load(find_env(id).players[name]) for name in ("expert", "mediocre")
    )
    assert (expert.default_skill, mediocre.default_skill) == (1.0, 0.5)
    assert (expert().skill, mediocre().skill, mediocre(skill=0.0).skill) == (1.0, 0.5, 0.0)
    assert mediocre.best is expert.best


@pytest.mark.parametrize("id", IDS)
def test_the_classes_of_a_game_are_found_by_name_and_travel_to_other_processes(id: str) -> None:
    named = find_env(id)
    for address in (named.entry_point, named.translator, named.app, *named.players.values()):
        kind = user_code.load(str(address))
        assert pickle.loads(pickle.dumps(kind)) is kind
        assert f"{kind.__module__}:{kind.__name__}" == address


@pytest.mark.parametrize("id", IDS)
def test_players_of_less_skill_do_worse(id: str) -> None:
    level = {"length": "30", "pairs": "6"}
    turns, games = 30, 5
    if id == "Game2048-v0":  # a long game, in which luck matters
        level, turns, games = {"goal": "2048"}, 120, 2
    best, middle, worst = (
        np.mean([play(id, name, seed, turns, **level)[-1]["score"] for seed in range(games)])
        for name in ("expert", "mediocre", "random")
    )
    assert best > middle > worst


def test_the_memory_player_turns_each_card_at_most_twice() -> None:
    for seed in range(10):
        turned: Counter[int] = Counter()
        states = play("Flip-v0", "expert", seed, pairs="8")
        for before, after in itertools.pairwise(states):
            pair = {*after["found"]} - {*before["found"]} - {*before["open"]}
            turned[pair.pop() if pair else after["open"][-1]] += 1
        assert max(turned.values()) <= 2


@pytest.mark.parametrize("id", IDS)
def test_states_are_plain_json_and_hold_the_places_of_all_calls(id: str) -> None:
    app = new_app(id)
    app.launch(extras(id, 3))
    state = app.state()
    assert json.loads(json.dumps(state)) == state
    assert state["seed"] == 3
    assert {*app.game.calls} <= {*state["touch_targets"], "flip(card)"}


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("size", SIZES)
def test_pictures_have_the_requested_size_and_differ_between_states(
    id: str, size: tuple[int, int]
) -> None:
    app, rng, who = new_app(id), np.random.default_rng(0), player(id, "expert", mode="calls")
    app.launch(extras(id, 3))
    pictures = [app.render(*size)]
    while not app.rules.done:
        name, index = who.choose(app.state(), rng)
        app.rules.flip(index) if index is not None else app.rules.move(name)
        for _ in range(4 if id == "FlappyBird-v0" else 1):
            app.rules.tick()
        pictures.append(app.render(*size))
        assert np.array_equal(pictures[-1], app.render(*size))
    assert {(picture.shape, picture.dtype) for picture in pictures} == {
        ((size[1], size[0], 3), np.dtype(np.uint8))
    }
    for before, after in itertools.pairwise(pictures):
        assert not np.array_equal(before, after)


@pytest.mark.parametrize("id", IDS)
def test_a_picture_belongs_to_its_caller(id: str) -> None:
    app = new_app(id)
    app.launch(extras(id, 3))
    first = app.render(180, 308)
    kept = first.copy()
    first[:] = 0
    assert np.array_equal(app.render(180, 308), kept)


@pytest.mark.parametrize("id", IDS)
def test_the_prompt_names_every_call(id: str) -> None:
    prompt = make_translator(id, {"mode": "calls", "style": "tool"}).instructions()
    for form in new_app(id).game.calls:
        assert f'"{form.partition("(")[0]}"' in prompt


def test_cards_that_a_small_table_lacks_are_turned_in_vain() -> None:
    app = new_app("Flip-v0")
    app.launch({"pairs": "3"})
    cards = app.state()["touch_targets"]["flip"]
    assert [app.touch(x, to_app(y)) for x, y in cards] == [True] * 6 + [False] * 10


@pytest.mark.parametrize("late", [0, 1])
def test_on_a_running_clock_a_flap_may_come_a_tick_late(late: int) -> None:
    who, rng = player("FlappyBird-v0", "expert", mode="calls"), np.random.default_rng(0)
    for seed in range(5):
        app = new_app("FlappyBird-v0")
        app.launch({"seed": str(seed), "clock": "running"})
        while not app.state()["done"]:
            name, _ = who.choose(app.state(), rng)
            for _ in range(late):
                app.rules.tick()
            app.rules.move(name)
            app.rules.tick()
        assert app.state()["success"], (seed, app.state())


def test_a_drag_sends_the_ship_where_it_ends() -> None:
    app = new_app("SpaceFighter-v0")
    app.launch({})
    assert app.swipe(0.5, 0.9, 0.9, 0.5, 300)
    assert (app.state()["target"], app.state()["ship"]) == (4, 3)


def test_the_documented_picture_of_all_games_is_up_to_date() -> None:
    program = Path(__file__).parents[4] / "docs" / "make_minigames.py"
    spec = importlib.util.spec_from_file_location("make_minigames", program)
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    drawn, shown = (
        np.asarray(picture.convert("RGB"), dtype=int)
        for picture in (make.picture(), Image.open(make.PICTURE))
    )
    assert drawn.shape == shown.shape
    assert np.abs(drawn - shown).mean() < 1, "run: python docs/make_minigames.py"


@pytest.mark.parametrize("player", [flip_players.FlipExpert, flip_players.FlipMediocre])
@pytest.mark.parametrize("seed", range(5))
def test_notes_of_flip_list_seen_cards_and_reasoning_names_the_best_move(player, seed):
    flip, writer = Flip(seed, pairs=3), player(mode="calls", notes=True)
    rng = np.random.default_rng(seed)
    while not flip.done:
        state = flip.state()
        reply = writer.reply(state, rng)
        found = re.fullmatch(
            r"<memory>(.*)</memory><think>([a-c]?)(\??)(\d)</think>"
            r"<action>flip\((\d)\)</action>", reply,
        )  # fmt: skip
        assert found is not None, reply
        note, picture, unknown, best, card = found.groups()
        seen = {
            f"{'abc'[face]}{number}"
            for number, face in enumerate(state["known"])
            if face is not None and number not in state["found"]
        }
        assert set(note.split()) - {"-"} == seen
        assert int(best) == writer.best(state)
        assert bool(unknown) != (f"{picture}{best}" in seen)
        if isinstance(writer, flip_players.FlipExpert) and writer.skill == 1:
            assert card == best
        flip.flip(int(card))
    assert flip.won


def test_without_notes_flip_replies_with_the_action_only():
    state = Flip(0, pairs=3).state()
    rng = np.random.default_rng(0)
    assert flip_players.FlipExpert(mode="calls").reply(state, rng) == "<action>flip(0)</action>"
