"""Reward functions that harm their process, or whose files do more than define functions."""

import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from agentrl.config import RewardConfig
from agentrl.errors import ConfigError, RewardError
from agentrl.rollout.rewards.scoring import RewardFunctions
from tests.rollout.rewards.test_reward_pool import functions, replying


def scores(name, count=6):
    """Return the totals of good episodes before and after a bad one."""
    with functions(f"hostile_rewards:{name}") as rewards:
        episodes = [replying("bad" if member == 2 else "", member) for member in range(count)]
        return list(rewards.score_all(episodes)), rewards.score(replying("")).reward


@pytest.mark.parametrize("name", ["forks_and_returns", "forks_and_exits"])
def test_a_process_that_a_function_forks_does_not_score_episodes(name):
    scored, next_total = scores(name)
    assert [one.reward for one in scored] == [1.0] * 6
    assert next_total == 1.0


def test_a_function_that_closes_the_connections_voids_its_own_episode_only(capfd):
    scored, next_total = scores("closes_descriptors")
    assert str(scored[2]) == "reward closes_descriptors: its process ended with exit code 1"
    assert [one.reward for one in scored if one is not scored[2]] == [1.0] * 5
    assert next_total == 1.0
    assert "closed file descriptors that it had not opened" in capfd.readouterr().err


def test_what_a_function_prints_after_closing_the_output_appears(capfd):
    scored, _ = scores("closes_output")
    assert [one.reward for one in scored] == [1.0] * 6
    assert capfd.readouterr().out.count("printed later") == 6


def test_log_records_of_forked_processes_do_not_disturb_the_results(capfd):
    scored, _ = scores("logs_in_forks", count=4)
    assert [one.reward for one in scored] == [1.0] * 4
    assert "x" * 40_000 in capfd.readouterr().err


@pytest.mark.parametrize("name", ["sends_episode_to_process", "pickles_episode", "reads_in_fork"])
def test_an_episode_can_be_sent_to_processes_that_a_function_starts(name):
    image = np.full((4, 4, 3), 7, np.uint8)
    with functions(f"hostile_rewards:{name}") as rewards:
        assert rewards.score(replying("", images=(image,))).reward == 1.0


def test_a_function_of_any_names_is_called_by_names():
    with functions("hostile_rewards:takes_any_name", kind="completions") as rewards:
        assert rewards.score(replying("yes")).reward == 1.0


def test_a_function_without_a_signature_is_a_config_error():
    with pytest.raises(
        ConfigError, match=r"max: no signature found .* wrap it in a Python function"
    ):
        RewardFunctions([RewardConfig(function="builtins:max")])


def test_an_entry_of_the_search_path_that_is_no_text_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [tmp_path, *sys.path])
    with functions("scores:behaves") as rewards:
        assert rewards.score(replying("")).reward == 1.0


def test_a_process_that_cannot_be_started_is_an_error():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
    try:
        with pytest.raises(
            ConfigError, match=r"cannot start a process for them: .*Too many open files"
        ):
            functions("scores:behaves")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_changed_file_of_functions_is_reported_when_it_is_imported_again(tmp_path, caplog):
    file = tmp_path / "edited.py"
    code = "import os\ndef f(episode):\n    {}\n    return 1.0\n"
    file.write_text(code.format("if episode.turns[-1].reply == 'bad': os._exit(1)"))
    with RewardFunctions([RewardConfig(function=f"{file}:f")]) as rewards:
        for _ in range(2):
            assert isinstance(next(rewards.score_all([replying("bad")])), RewardError)
            assert rewards.score(replying("")).reward == 1.0
        assert not caplog.records
        file.write_text(code.format("if episode.turns[-1].reply == 'bad': os._exit(1) # new"))
        assert isinstance(next(rewards.score_all([replying("bad")])), RewardError)
        assert rewards.score(replying("")).reward == 1.0
    (record,) = caplog.records
    assert "edited.py has changed since the job started" in record.message


SCRIPT = """
from agentrl.config import RewardConfig
from agentrl.rollout.rewards.scoring import RewardFunctions

def mine(episode):
    return 1.0

RewardFunctions([RewardConfig(function=NAME)])
"""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("'__main__:mine'", "name the function's file, as in path/file.py:mine"),
        (
            "__file__ + ':mine'",
            'move everything except definitions below `if __name__ == "__main__":`',
        ),
    ],
)
def test_functions_of_a_script_that_starts_a_job_are_refused(name, why, tmp_path):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.replace("NAME", name))
    ended = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert why in ended.stderr.splitlines()[-1]


def test_a_file_that_would_get_the_helper_of_another_folder_is_refused(tmp_path):
    for folder, value in (("one", 1.0), ("two", 2.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "my_helper.py").write_text(f"VALUE = {value}\n")
        code = "from my_helper import VALUE\ndef score(episode):\n    return VALUE\n"
        (tmp_path / folder / f"{folder}_reward.py").write_text(code)
    configs = [RewardConfig(function=f"{tmp_path}/{d}/{d}_reward.py:score") for d in ("one", "two")]
    with pytest.raises(ConfigError, match=r"two_reward\.py imports 'my_helper'.*one/my_helper\.py"):
        RewardFunctions(configs)
    (tmp_path / "two" / "my_helper.py").write_text("VALUE = 1.0\n")
    with RewardFunctions(configs) as rewards:
        assert rewards.score(replying("")).reward == 2.0
