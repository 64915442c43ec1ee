"""PettingZoo games and OpenEnv servers, selected by a prefix of `env.id`."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from threading import Thread

import numpy as np
import pettingzoo
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.classic.rps import rps
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from agentrl.config import Config, EnvConfig
from agentrl.errors import ConfigError, EnvError
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.types import Outcome
from tests.virtual_phone.third_party.clients import NotInstalled, python_packages

HERE = Path(__file__).parent
ME = "tests.rollout.environments.test_foreign_interfaces"
TIC_TAC_TOE, RPS = "pettingzoo:classic/tictactoe-v3", "pettingzoo:classic/rps-v2"


def last_legal(observation, space, agent, rng):
    """Choose the last legal action, so that play is deterministic."""
    if isinstance(observation, dict):
        return int(np.flatnonzero(observation["action_mask"])[-1])
    return (int(observation) + 1) % 3


def first_legal(observation):
    return int(np.flatnonzero(observation["action_mask"])[0])


def returns_by_pettingzoo(own: str) -> tuple[float, int]:
    """Return one player's return and turns, in the loop that PettingZoo documents."""
    game = pettingzoo.make("aec", "classic/tictactoe-v3")
    game.reset(seed=1)
    total, turns = 0.0, 0
    for agent in game.agent_iter():
        observation, reward, terminated, truncated, _ = game.last()
        action = None
        if not (terminated or truncated):
            mine = agent == own
            action = (
                first_legal(observation) if mine else last_legal(observation, None, agent, None)
            )
            turns += mine
        total += reward if agent == own else 0.0
        game.step(action)
    return total, turns


@pytest.mark.parametrize("agent", ["player_1", "player_2"])
def test_one_agent_gets_what_pettingzoo_gives_it(agent: str) -> None:
    game = resolve_env(
        EnvConfig(id=TIC_TAC_TOE, kwargs={"agent": agent, "others": f"{ME}:last_legal"})
    ).make()
    observation, info = game.reset(seed=1)
    total, turns, terminated = 0.0, 0, False
    while not terminated:
        assert info["agent"] == agent
        np.testing.assert_array_equal(info["action_mask"], observation["action_mask"])
        observation, reward, terminated, truncated, info = game.step(first_legal(observation))
        assert not truncated
        total, turns = total + reward, turns + 1
    assert (total, turns) == returns_by_pettingzoo(agent)
    assert total != 0
    game.close()


def test_a_parallel_game_is_played_as_by_itself() -> None:
    """Rock, paper, scissors: 15 rounds against a player that beats the last move."""
    moves = [0, 1, 2, 2, 1] * 3
    parallel = rps.parallel_env()
    seen, _ = parallel.reset(seed=1)
    expected = []
    for move in moves:
        other = last_legal(seen["player_1"], None, "player_1", None)
        seen, rewards, _, truncations, _ = parallel.step({"player_0": move, "player_1": other})
        expected.append(rewards["player_0"])
    for target in (RPS, "pettingzoo:pettingzoo.classic.rps.rps:parallel_env"):
        game = resolve_env(EnvConfig(id=target, kwargs={"others": f"{ME}:last_legal"})).make()
        game.reset(seed=1)
        steps = [game.step(move) for move in moves]
        assert [reward for _, reward, *_ in steps] == expected
        assert [truncated for *_, truncated, _ in steps] == [False] * 14 + [truncations["player_0"]]


def test_all_agents_can_be_played_and_unknown_ones_are_refused() -> None:
    game = resolve_env(EnvConfig(id=RPS, kwargs={"agent": "all"})).make()
    infos, total, over = [game.reset(seed=1)[1]], 0.0, False
    while not over:
        _, reward, _, over, info = game.step(len(infos) % 3)
        infos.append(info)
        total += reward
    assert [info["agent"] for info in infos[:4]] == ["player_0", "player_1"] * 2
    assert (len(infos), total) == (31, 0.0)  # one agent wins and one loses
    with pytest.raises(ConfigError, match=r"agent=player_9.*player_0"):
        resolve_env(EnvConfig(id=RPS, kwargs={"agent": "player_9"})).make()
    with pytest.raises(ConfigError, match="no-such-game"):
        resolve_env(EnvConfig(id="pettingzoo:classic/no-such-game-v0")).make()


async def test_a_random_player_plays_only_legal_moves_on_the_picture_of_the_board() -> None:
    config = Config(env=EnvConfig(id=TIC_TAC_TOE))
    episodes = await played(config, "random", [1, 2, 3, 4])
    for episode in episodes:
        assert episode.outcome is Outcome.TERMINATED
        assert 3 <= len(episode.turns) <= 5  # an illegal action would end the game at once
        assert all(turn.images for turn in episode.turns)
    assert len({tuple(turn.reply for turn in one.turns) for one in episodes}) > 1


async def played(config: Config, player: str, seeds: list[int]):
    config.rollout.max_refills = 0
    rollouts = RolloutWorker(plan_rollouts(config), None, None)
    await rollouts.start()
    try:
        scored = await rollouts.collect(requests_of_step("train", 1, seeds, 1), player)
    finally:
        await rollouts.close()
    return [one.episode for one in scored]


@pytest.fixture(scope="module")
def openenv() -> Iterator[str]:
    """Return the id of an environment served by OpenEnv's own server."""
    try:
        packages = python_packages(HERE / "openenv_server.txt")
    except NotInstalled as error:
        pytest.skip(str(error))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, str(HERE / "openenv_server.py"), str(port)],
        env=os.environ | {"PYTHONPATH": str(packages)},
    )
    try:
        end = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < end, "the server did not start"
                assert server.poll() is None, "the server ended"
                time.sleep(0.1)
        yield f"openenv://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


class Bisecting:
    """Finds the number by bisection, using the hints."""

    def reply(self, info, rng, observation):
        low, high = getattr(self, "range", (0, 9))
        if observation["hint"].startswith("guess"):
            low, high = 0, 9
        elif observation["hint"] == "higher":
            low = self.last + 1
        else:
            high = self.last - 1
        self.range, self.last = (low, high), (low + high) // 2
        action = {"number": self.last, "certain": int(low == high), "words": ""}
        return f"<action>{json.dumps(action)}</action>"


@pytest.mark.slow
async def test_episodes_of_an_openenv_server_are_played_and_a_failure_voids_one(openenv) -> None:
    config = Config(env=EnvConfig(id=openenv, players={"expert": f"{ME}:Bisecting"}, max_turns=6))
    config.rollout.concurrency = 1  # the player remembers one game
    episodes = await played(config, "expert", [1, 2, 3, 4, 5])
    assert [episode.outcome for episode in episodes] == [Outcome.TERMINATED] * 5
    assert all(episode.turns[-1].env_reward in (1.0, 2.0) for episode in episodes)
    assert [turn.info["turns"] for turn in episodes[0].turns] == [
        *range(1, len(episodes[0].turns) + 1)
    ]


@pytest.mark.slow
def test_an_openenv_action_has_the_fields_of_the_schema_and_a_refusal_changes_nothing(
    openenv,
) -> None:
    config = EnvConfig(id=openenv, kwargs={"hint": "think of"})
    translator, game = open_translator(resolve_env(config)), resolve_env(config).make()
    assert "number a whole number from 0 to 9" in translator.instructions()
    observation, info = game.reset(seed=3)
    assert translator.to_observation(observation, info).text == "hint: think of 0 to 9"
    again, reward, terminated, _, info = game.step({"number": 77, "certain": 0, "words": ""})
    assert (again, reward, terminated) == (observation, 0.0, False)
    assert "less than or equal to 9" in info["refused"]
    with pytest.raises(EnvError, match="EXECUTION_ERROR: the game broke"):
        game.step({"number": 1, "certain": 0, "words": "break"})
    assert game.reset(seed=3)[0] == observation
    game.close()


def test_no_server_and_another_server_are_named() -> None:
    with pytest.raises(EnvError, match=r"openenv://127\.0\.0\.1:1 is not an OpenEnv server"):
        resolve_env(EnvConfig(id="openenv://127.0.0.1:1")).make()


@pytest.fixture
def answering() -> Iterator[Callable[..., str]]:
    """Start servers that give the same answer to every request; return the environments' ids."""
    with ExitStack() as servers:

        def start(answer: object, schema: object = SCHEMA) -> str:
            def respond(connection: ServerConnection, request: Request) -> Response | None:
                is_schema = request.path == "/schema"
                return connection.respond(HTTPStatus.OK, json.dumps(schema)) if is_schema else None

            def handle(connection: ServerConnection) -> None:
                for _ in connection:
                    connection.send(json.dumps(answer))

            server = servers.enter_context(serve(handle, "127.0.0.1", 0, process_request=respond))
            servers.callback(server.shutdown)
            Thread(target=server.serve_forever, daemon=True).start()
            return f"openenv://127.0.0.1:{server.socket.getsockname()[1]}"

        yield start


SCHEMA = {"action": {"properties": {"number": {"type": "integer"}}}}


@pytest.mark.parametrize(
    "answer",
    [
        [1], None, {"type": "state", "data": {}}, {"type": "error", "data": "late"},
        {"type": "observation"}, {"type": "observation", "data": {"reward": 1}},
        {"type": "observation", "data": {"observation": "text"}},
        {"type": "observation", "data": {"observation": {}, "reward": "much"}},
    ],
)  # fmt: skip
def test_an_answer_in_another_form_is_an_error_that_shows_it(answering, answer) -> None:
    game = resolve_env(EnvConfig(id=answering(answer))).make()

    def play() -> None:
        game.reset(seed=1)
        game.step({"number": 1})

    with pytest.raises(
        EnvError, match="is not a valid OpenEnv response; the server may use a different"
    ):
        play()
    game.close()


@pytest.mark.parametrize("schema", [[1], {"actions": {}}, {"action": None}])
def test_a_server_with_another_schema_is_named(answering, schema) -> None:
    with pytest.raises(EnvError, match="not an OpenEnv server"):
        resolve_env(EnvConfig(id=answering(None, schema))).make()


class MaskedInInfo(AECEnv):
    """Two agents that may take only the action that the info allows."""

    metadata = {"name": "masked_v0", "render_modes": [], "is_parallelizable": False}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.possible_agents = ["first", "second"]

    def observation_space(self, agent):
        return spaces.Discrete(10)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents, self.turn, self.agent_selection = [*self.possible_agents], 0, "first"
        self.rewards = self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {"action_mask": np.array([0, 1, 0], np.int8)} for agent in self.agents}

    def observe(self, agent):
        return self.turn

    def step(self, action):
        assert action == 1
        self.turn += 1
        self.agent_selection = self.possible_agents[self.turn % 2]


def test_the_others_play_legal_moves_where_the_mask_is_in_the_info() -> None:
    game = resolve_env(EnvConfig(id=f"pettingzoo:{ME}:MaskedInInfo")).make()
    _, info = game.reset(seed=1)
    for _ in range(8):
        np.testing.assert_array_equal(info["action_mask"], [0, 1, 0])
        *_, info = game.step(1)
