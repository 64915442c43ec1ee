import asyncio
import subprocess
import sys
import time

import numpy as np
import pytest

from agentrl.actions.default_translator import SpaceTranslator
from agentrl.config import EnvConfig
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.scripted_policy import ScriptedPolicy
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.environments.load_translator_and_players import load_player, open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.run_episode import EpisodeLimits, EpisodeRequest, run_episode
from agentrl.types import Outcome, TruncatedBy
from tests.rollout.games import Countdown, Player

TICKET = EpisodeRequest(split="train", step=3, group=1, member=2, seed=6)


async def play_countdown(max_turns=20, deadline_s=30.0, player=None, most=1, **kwargs):
    config = EnvConfig(
        id="tests.rollout.games:Countdown-v0",
        kwargs=kwargs,
        translator_kwargs={"names": ["down", "up"]},
        max_actions_per_reply=most,
    )
    runner = EnvRunner(resolve_env(config), None)
    try:
        return await run_episode(
            request=TICKET,
            env_id="Countdown-v0",
            runner=runner,
            policy=ScriptedPolicy(player or Player()),
            seed=1,
            limits=EpisodeLimits(max_turns=max_turns, deadline_s=deadline_s),
        )
    finally:
        runner.close()


class Babbler:
    def reply(self, info, rng):
        return "no" if info["left"] == 3 else "<action>up</action>"


async def test_episode_is_played_to_its_end():
    episode = await play_countdown()
    assert episode.outcome is Outcome.TERMINATED
    assert episode.error is None
    assert (episode.id, episode.group) == ("train-00003-g001-m02", "train-00003-g001")
    assert episode.reset_info["left"] == 5
    assert [t.info["left"] for t in episode.turns if t.action is not None] == [4, 3, 2, 1, 0]


async def test_state_key_names_the_state_a_turn_started_from():
    episode = await play_countdown()
    assert [t.state_key for t in episode.turns][:2] == ["6/5", "6/4"]


async def test_invalid_reply_costs_a_turn_but_not_the_episode():
    episode = await play_countdown(player=Babbler(), max_turns=9)
    bad = [t for t in episode.turns if t.parse_error]
    assert episode.outcome is Outcome.TRUNCATED
    assert len(episode.turns) == 9
    assert len(bad) == 7
    assert all(t.action is None and t.env_reward == 0 for t in bad)
    assert "exactly one" in bad[0].parse_error


class Chunks:
    """Plays the given replies, each a line of actions."""

    def __init__(self, *lines):
        self.lines = iter(lines)

    def reply(self, info, rng):
        return "".join(f"<action>{word}</action>" for word in next(self.lines).split())


async def test_actions_of_a_reply_are_executed_until_one_is_invalid_or_the_episode_ends():
    player = Chunks("up down", "up jump up", "up up down up", "up up up")
    episode = await play_countdown(player=player, most=3)
    assert episode.outcome is Outcome.TERMINATED
    first, second, rejected, last = episode.turns
    assert [turn.action for turn in episode.turns] == [[1, 0], [1], None, [1, 1]]
    assert [turn.env_reward for turn in episode.turns] == [1.0, 1.0, 0.0, 2.0]
    assert [turn.state_key for turn in episode.turns] == ["6/5", "6/3", "6/2", "6/2"]
    assert [(one.action, one.reward) for one in first.chunk] == [(1, 1.0), (0, 0.0)]
    assert [one.shown for one in first.chunk] == ["4 left", "3 left"]
    assert first.parse_error is last.parse_error is None
    assert second.parse_error.startswith("action 2 of 3: 'jump' is not an action")
    assert "4 actions in the reply; at most 3 are allowed" in rejected.parse_error
    assert rejected.chunk == ()
    assert [info["left"] for info in last.infos] == [1, 0]
    assert last.info is last.chunk[-1].info
    assert "You may give up to 3 actions" in episode.instructions
    assert "<action>...</action>" in episode.instructions


async def test_with_one_action_per_reply_a_turn_has_no_chunk():
    episode = await play_countdown(player=Chunks(*["up"] * 5))
    assert [(turn.action, turn.chunk) for turn in episode.turns] == [(1, ())] * 5
    assert "You may give" not in episode.instructions


async def test_a_failure_in_the_middle_of_a_chunk_voids_the_episode():
    episode = await play_countdown(player=Chunks("up", "up up up"), most=3, fault="raise")
    assert episode.outcome is Outcome.ENV_ERROR
    assert len(episode.turns) == 1


async def test_a_turn_takes_the_time_of_all_its_actions():
    kwargs = {"pause_s": 0.01, "every": 1}
    episode = await play_countdown(player=Chunks("up up up up up"), most=5, **kwargs)
    assert episode.turns[0].timings["act"] > 0.05


async def test_a_chunk_stops_when_another_app_comes_to_the_front(monkeypatch):
    step = Countdown.step

    def left_behind(game, action):
        *parts, info = step(game, action)
        guard = {"guard": {"no_frame": True}} if game.left == 3 else {}
        return *parts, {**info, **guard}

    monkeypatch.setattr(Countdown, "step", left_behind)
    episode = await play_countdown(player=Chunks("up up up up", "up up up"), most=4)
    assert [turn.action for turn in episode.turns] == [[1, 1], [1, 1, 1]]
    assert [one.shown for one in episode.turns[0].chunk] == ["4 left", ""]


async def test_random_players_use_all_numbers_of_actions():
    config = EnvConfig(id="FrozenLake-v1", max_actions_per_reply=3)
    player, rng = load_player(resolve_env(config), "random"), np.random.default_rng(0)
    counts = {player.reply({}, rng).count("<action>") for _ in range(50)}
    assert counts == {1, 2, 3}
    assert player.reply({"action_mask": np.array([0, 1, 0, 0])}, rng) == "<action>1</action>"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"id": "QA-v0"}, r"the translator of QA-v0 writes one action per reply"),
        ({"id": "NumberGame-v0", "dialect": "ui-tars"}, "the dialect ui-tars writes one action"),
    ],
)
def test_a_format_with_one_action_per_reply_is_rejected_in_advance(config, said):
    with pytest.raises(ConfigError, match=rf"env\.max_actions_per_reply=2: {said}"):
        open_translator(resolve_env(EnvConfig(max_actions_per_reply=2, **config)))


def test_the_tag_of_an_action_does_not_end_a_reply_with_several():
    config = EnvConfig(id="NumberGame-v0", dialect="qwen3-vl-mobile-use")
    assert resolve_env(config).stop_texts == ("</tool_call>",)
    config.max_actions_per_reply = 2
    assert resolve_env(config).stop_texts == ()


async def test_a_translator_that_fails_without_an_action_voids_the_episode(monkeypatch):
    def broken(translator):
        raise KeyError("pause")

    monkeypatch.setattr(SpaceTranslator, "no_action", broken)
    episode = await play_countdown(player=Babbler())
    assert episode.outcome is Outcome.ENV_ERROR
    assert "the translator's no_action(): KeyError: 'pause'" in episode.error


async def test_one_message_is_composed_per_answer_and_a_failing_one_loses_no_turn(monkeypatch):
    composed, compose = [], SpaceTranslator.to_message

    def to_message(translator, observation):
        composed.append(observation)
        if len(composed) > 3:
            raise KeyError("words")
        return compose(translator, observation)

    monkeypatch.setattr(SpaceTranslator, "to_message", to_message)
    assert len((await play_countdown(max_turns=3, player=Babbler())).turns) == 3
    assert len(composed) == 3
    composed.clear()
    episode = await play_countdown(player=Babbler())
    assert "the translator's message: KeyError: 'words'" in episode.error
    assert [turn.info["left"] for turn in episode.turns] == [4, 3, 3]


async def test_turn_limit_truncates():
    episode = await play_countdown(max_turns=2)
    assert (episode.outcome, len(episode.turns)) == (Outcome.TRUNCATED, 2)
    assert episode.truncated_by is TruncatedBy.TURNS


async def test_environment_may_truncate():
    episode = await play_countdown(fault="truncate")
    assert episode.outcome is Outcome.TRUNCATED
    assert episode.truncated_by is TruncatedBy.ENVIRONMENT


@pytest.mark.parametrize(
    ("fault", "outcome", "words"),
    [
        ("raise", Outcome.ENV_ERROR, "RuntimeError: the environment broke (games.py:"),
        ("exit", Outcome.ENV_ERROR, "SystemExit: 0"),
        ("cancel", Outcome.ENV_ERROR, "CancelledError"),
        ("no info", Outcome.ENV_ERROR, "info is NoneType"),
        ("text reward", Outcome.ENV_ERROR, "the reward is '1.0' (str), not a number"),
        ("nan reward", Outcome.ENV_ERROR, "the reward is nan, not a finite number"),
        ("metrics of words", Outcome.ENV_ERROR, "['metrics']['a'] is 'x'"),
        ("metrics that steer", Outcome.ENV_ERROR, r"'\x1b[31mred \ud800'"),
        ("no metrics", Outcome.ENV_ERROR, "info['metrics'] is None"),
        ("listed key", Outcome.ENV_ERROR, "info['state_key'] is [1, 2]"),
        ("offline", Outcome.DEVICE_ERROR, "DeviceOffline: phone-1 is offline"),
        ("hang", Outcome.TIMEOUT, "s (rollout.deadline_s), while waiting for tests"),
    ],
)
async def test_environment_failure_voids_the_episode(fault, outcome, words):
    episode = await play_countdown(fault=fault, deadline_s=0.5 if fault == "hang" else 30.0)
    assert episode.outcome is outcome
    assert episode.outcome.void
    assert words in episode.error
    assert len(episode.turns) >= 2


async def test_randomness_of_a_player_follows_the_seed():
    first, second = await play_countdown(), await play_countdown()
    assert [t.reply for t in first.turns] == [t.reply for t in second.turns]


class Sleeper:
    def reply(self, info, rng):
        time.sleep(2.0)
        return "too late"


async def test_player_that_hangs_blocks_no_other_episode():
    slow, quick = await asyncio.gather(
        play_countdown(player=Sleeper(), deadline_s=0.5), play_countdown(deadline_s=1.5)
    )
    assert slow.outcome is Outcome.TIMEOUT
    assert quick.outcome is Outcome.TERMINATED


class Broken:
    def reply(self, info, rng):
        raise KeyError("lamp")


async def test_player_that_raises_voids_the_episode():
    episode = await play_countdown(player=Broken())
    assert episode.outcome is Outcome.ENV_ERROR
    assert "KeyError: 'lamp'" in episode.error


class Particular(Player):
    turns = 0

    def reply(self, info, rng):
        self.turns += 1
        if self.turns > 1:
            raise ConfigError("it wants another level") from KeyError("lamp")
        return super().reply(info, rng)


async def test_causes_of_a_failure_are_logged_and_not_kept(caplog):
    caplog.set_level("DEBUG", "agentrl.rollout.run_episode")
    episode = await play_countdown(player=Particular())
    assert episode.error == "EnvError: it wants another level"
    logged = [text for text in caplog.text.splitlines() if "Error: " in text]
    assert [text.split(":")[0].split(".")[-1] for text in logged[1:]] == [
        "KeyError", "ConfigError", "EnvError"
    ]  # fmt: skip
    assert episode.failure.__cause__ is episode.failure.__traceback__ is None


async def test_text_with_the_image_token_voids_the_episode(tiny_vlm):
    encoder = ChatEncoder(tiny_vlm)
    config = EnvConfig(
        id="tests.rollout.games:Countdown-v0",
        kwargs={"said": "<image>"},
        translator_kwargs={"names": ["down", "up"]},
    )
    runner = EnvRunner(resolve_env(config), None)
    episode = await run_episode(
        request=TICKET,
        env_id="Countdown-v0",
        runner=runner,
        policy=ScriptedPolicy(Player(), encoder),
        seed=1,
        limits=EpisodeLimits(max_turns=5, deadline_s=30.0),
    )
    runner.close()
    assert episode.outcome in (Outcome.TERMINATED, Outcome.TRUNCATED)
    assert all("<image>" not in t.reply for t in episode.turns)


def test_environment_that_hangs_does_not_keep_the_process_alive():
    code = (
        "import asyncio, time\n"
        "from agentrl.worker_thread import Worker\n"
        "async def main():\n"
        "    try:\n"
        "        async with asyncio.timeout(0.1):\n"
        "            await Worker('w').call(time.sleep, 600)\n"
        "    except TimeoutError:\n"
        "        print('given up')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "given up\n"
