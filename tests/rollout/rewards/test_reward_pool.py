"""Reward functions in separate processes: main thread, deadline, crashes, images."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace

import numpy as np
import pytest

from agentrl.config import RewardConfig
from agentrl.errors import ConfigError, RewardError
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.rewards import reward_pool
from agentrl.rollout.rewards.lazy_episode_transfer import contents_of, pickled, unpickled
from agentrl.rollout.rewards.scoring import RewardFunctions
from agentrl.types import Turn
from tests.rollout.test_collector import episode_of

TICKETS = requests_of_step("train", 1, [5], 8)


def functions(name, deadline_s=20.0, **fields):
    config = RewardConfig(function=f"tests.rollout.{name}", **fields)
    return RewardFunctions([config], deadline_s)


def replying(reply, member=0, **changes):
    episode = episode_of(TICKETS[member], turns=2)
    last = replace(episode.turns[-1], reply=reply, **changes)
    return replace(episode, turns=(episode.turns[0], last))


@pytest.fixture(scope="module")
def obedient():
    with functions("scores:behaves") as rewards:
        yield rewards


@pytest.mark.parametrize(
    ("truth", "reply"), [("0.5", r"$\frac{1}{2}$"), ("$2x + 1$", "$1 + 2x$"), ("blue", "blue")]
)
def test_functions_that_use_math_verify_as_other_projects_do_score_right_answers(truth, reply):
    def answering(reply):
        row = {"row": {"solution": truth, "prompt": [{"role": "user", "content": "?"}]}}
        episode = replying(reply, info={"ground_truth": truth})
        return replace(episode, reset_info=row)

    names = ["symbolic", "metric"] if truth != "blue" else ["symbolic"]
    configs = [RewardConfig(function=f"tests.rollout.math_rewards:{name}") for name in names]
    with RewardFunctions(configs) as rewards:
        right, wrong = rewards.score(answering(reply)), rewards.score(answering("$7$"))
    assert {name: values[-1] for name, values in right.components.items()} == dict.fromkeys(
        names, 1
    )
    assert wrong.reward == 0


@pytest.mark.parametrize("name", ["behaves", "behave_in_batches", "behaves_later"])
def test_a_call_that_ends_its_process_or_never_ends_voids_its_own_episode_only(name, caplog):
    with functions(f"scores:{name}", deadline_s=1.5) as rewards:
        for bad, why in (
            ("exit", "its process ended with exit code 3"),
            ("regex", r"no result within rollout\.reward_deadline_s=1\.5 s"),
        ):
            episodes = [replying(bad if member == 3 else "", member) for member in range(6)]
            scored = list(rewards.score_all(episodes))
            assert isinstance(scored[3], RewardError), scored
            assert re.match(rf"reward {name}: {why}", str(scored[3]))
            assert [one.reward for one in scored if one is not scored[3]] == [1.0] * 5


def test_prints_log_records_and_the_place_of_a_crash_appear(capfd, caplog):
    with functions("scores:behaves") as rewards:
        rewards.score(replying("print"))
        assert ("a_reward", 30, "logged by a reward") in caplog.record_tuples
        with pytest.raises(RewardError, match="behaves: its process ended with signal SIGSEGV"):
            rewards.score(replying("crash"))
        assert rewards.score(replying("")).reward == 1.0
    out, err = capfd.readouterr()
    assert "printed by a reward" in out
    assert "in _behave" in err


def test_an_asynchronous_call_that_waits_too_long_does_not_end_the_process():
    with functions("scores:behaves_later", deadline_s=1.0) as rewards:
        late, process = rewards.score_all([replying("sleep"), replying("process", 1)])
        assert str(late) == "reward behaves_later: no result within rollout.reward_deadline_s=1 s"
        assert rewards.score(replying("process")).reward == process.reward


def test_a_function_may_start_threads_and_processes_and_imports_no_torch(obedient):
    assert obedient.score(replying("start")).reward == 7.0
    assert obedient.score(replying("torch")).reward == 0.0


def test_fields_that_few_functions_read_arrive_when_they_are_read():
    with functions("scores:reads_fields") as rewards:
        image = np.full((4, 4, 3), 7, np.uint8)
        episode = replace(replying("", images=(image, 2 * image)), final_images=(3 * image,))
        assert rewards.score(episode).reward == 14 + 21 - 2


def test_images_that_a_function_keeps_do_not_change_with_later_episodes():
    episodes = [
        replying("?" * number, images=(np.full((9 + number, 50, 3), number, np.uint8),))
        for number in range(40)
    ]
    with functions("scores:KeepsSomeImages") as rewards:
        assert [one.reward for one in rewards.score_all(episodes)] == [1.0] * 40


def test_a_sent_turn_equals_and_copies_like_one_of_its_own_process():
    turn = replace(episode_of(TICKETS[0], turns=1).turns[0], info={"steps": 3})
    episode = replace(episode_of(TICKETS[0], turns=1), turns=(turn,))
    sent = unpickled(pickled(episode), lambda: contents_of(episode)).turns[0]
    assert isinstance(sent, Turn)
    assert asdict(replace(sent, reply="other")) == asdict(replace(turn, reply="other"))
    assert (repr(sent), sent.seconds) == (repr(turn), turn.seconds)
    with pytest.raises(AttributeError, match="'Turn' object has no attribute 'replies'"):
        _ = sent.replies


def test_slow_functions_of_one_episode_run_in_several_processes_but_an_object_in_one():
    episodes = [replying("", member) for member in range(8)]
    with functions("scores:waits") as rewards:
        assert len({one.reward for one in rewards.score_all(episodes * 2)}) > 1
    with functions("scores:Waits") as rewards:
        assert len({one.reward for one in rewards.score_all(episodes)}) == 1


@pytest.mark.parametrize(
    ("milliseconds", "episodes", "several"), [(100, 12, True), (5, 400, True), (1, 32, False)]
)
def test_functions_that_compute_use_several_cores_while_many_episodes_wait(
    milliseconds, episodes, several, monkeypatch
):
    monkeypatch.setattr(reward_pool, "cores", lambda: 4)
    replies = [replying(str(milliseconds), member % 8) for member in range(episodes)]
    with functions("scores:computes") as rewards:
        assert (len({one.reward for one in rewards.score_all(replies)}) > 1) is several


@pytest.mark.parametrize(
    ("cores", "computing", "processes"),
    [
        (2, 0.98, 1),
        (3, 1.0, 1),
        (4, 1.02, 2),
        (16, 1.0, 8),
        (128, 1.0, 32),
        (2, 0.02, 32),
        (8, 0.5, 8),
    ],
)
def test_processes_compute_on_at_most_half_of_the_cores(cores, computing, processes, monkeypatch):
    monkeypatch.setattr(reward_pool, "cores", lambda: cores)
    assert reward_pool._most_processes(computing) == processes


class Unknown:
    """A class whose instances cannot be unpickled in another process."""


def test_values_that_cannot_be_sent_are_left_out_of_infos_with_a_warning(obedient, caplog):
    episode = replying("", info={"page": lambda: None, "steps": 3})
    for _ in range(2):
        assert obedient.score(episode).reward == 1.0
    (record,) = caplog.records
    assert "do not receive info['page'] of X-v0, because it cannot be sent" in record.message


def test_the_environments_own_reward_needs_no_process():
    before = _children()
    for names in ([], ["env_reward"], ["agentrl.data.reward_inputs:env_reward"]):
        configs = [RewardConfig(function=name, weight=2.0) for name in names]
        total = RewardFunctions(configs).score(episode_of(TICKETS[0], turns=2)).reward
        assert total == (4.0 if names else 2.0)
    assert _children() == before


def _children():
    found = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "args"], capture_output=True)
    return found.stdout.count(b"reward_process")


@pytest.mark.parametrize("reply", ["", "regex"])
def test_the_process_ends_with_its_parent_even_after_kill_9(reply):
    code = (
        "from tests.rollout.rewards.test_reward_pool import functions, replying;"
        "rewards = functions('scores:behaves');"
        "print(int(rewards.score(replying('process')).reward), flush=True);"
        f"rewards.score(replying({reply!r})); import time; time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    process = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(10)
    parent.stdout.close()
    end = time.monotonic() + 10
    while _is_alive(process):
        assert time.monotonic() < end
        time.sleep(0.01)


def _is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_function_that_ends_the_process_while_it_is_loaded_is_a_config_error(tmp_path):
    (tmp_path / "ends.py").write_text("import os\nos._exit(4)\n")
    with pytest.raises(ConfigError, match=r"ends\.py:f: their process ended with exit code 4"):
        RewardFunctions([RewardConfig(function=f"{tmp_path}/ends.py:f")])
