"""The checks of what users provide, on the examples, on broken copies of them, and on built-ins."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl import cli
from agentrl.check import checks, findings, findings_in_process, next_command
from agentrl.check.runner import describe_failure
from agentrl.errors import AgentRLError, ConfigError, RewardError
from agentrl.extension_points import CAPTURE, DRIVER

EXTEND = Path(__file__).parents[2] / "examples" / "extend"
EXAMPLES = {
    "logger": ("logger.py:CsvLogger", "digits=3"),
    "driver": ("driver.py:PlainDriver",),
    "capture": ("capture.py:PillowCapture",),
    "suite": ("suite.py:Lakes",),
    "sampler": ("sampler.py:Staircase", "share=0.4"),
    "dialect": ("dialect.py:Lines",),
    "reward": ("reward.py:brief", "per_token=0.01"),
    "player": ("player.py:Hasty", f"env.id={EXTEND}/environment.py:Lights-v0"),
}


def parametrized(kind, target, *settings):
    marks = [pytest.mark.adb] if kind in ("driver", "capture") else []
    return [
        pytest.param(check, id=f"{kind}-{target}-{check.name}", marks=marks)
        for check in checks(kind, target, *settings)
    ]


@pytest.mark.parametrize(
    "check",
    [
        one
        for kind, (target, *settings) in EXAMPLES.items()
        for one in parametrized(kind, f"{EXTEND}/{target}", *settings)
    ],
)
def test_every_example_passes(check, request) -> None:
    if request.node.get_closest_marker("adb"):
        request.getfixturevalue("adb_server")
    check()


@pytest.mark.parametrize(
    "check",
    [
        *parametrized("logger", "file"),
        *parametrized("logger", "console"),
        *parametrized("suite", "minigames"),
        *parametrized("sampler", "uniform"),
        *parametrized("sampler", "solve_rate"),
        *parametrized("sampler", "success_replay", "tasks=solve_rate"),
        *parametrized("suite", "number_game_levels"),
        *parametrized("reward", "number_game.outcome"),
        *parametrized("reward", "matching.exact"),
        *parametrized("translator", "space"),
        *parametrized("player", "Sokoban-v0/expert"),
    ],
)
def test_built_ins_pass(check) -> None:
    check()


@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [
        one
        for kind, point in (("driver", DRIVER), ("capture", CAPTURE))
        for name in point.names()
        for one in parametrized(kind, name)
    ],
)
def test_built_in_drivers_and_captures_pass(check, adb_server) -> None:
    check()


BROKEN = [
    ("logger", 'row["step"]', 'row["stp"]', "resumed", "KeyError: 'stp' (broken_0.py:"),
    ("logger", "digits: int = 6", "figures: int = 6", "installed", "got an unexpected keyword"),
    ("logger", "row = {", "metrics.clear(); row = {", "metrics_unchanged", "work on a copy"),
    ("driver", 'if status == b"FAIL"', 'if status == b"NO"', "refusal", "message is missing"),
    ("driver", "raise AdbRefused(self.read_block())", "return", "refusal", "answered FAIL"),
    ("capture", "return check_lit(serial, picture)", "return picture", "failures", "check_lit"),
    ("capture", "picture)", "picture[..., ::-1].copy())", "picture", "red and blue swapped"),
    ("sampler", 'state.get("num_open", 1)', "1", "resumed", "restore() loses part"),
    ("sampler", "+ others * weights", "", "no_starvation", "was not chosen in 240 steps"),
    ("suite", 'f"{size}{', '"lake" or f"{', "tasks", "two tasks are named 'lake'"),
    ("suite", '"map_name"', '"map_nam"', "environments", "map_nam: FrozenLake-v1 does not accept"),
    (
        "dialect",
        "(x1, y1) + at(x2, y2)",
        "(x2, y2) + at(x1, y1)",
        "spelling_and_parsing_agree",
        "is parsed as",
    ),
    (
        "dialect",
        "1000)).numbers",
        "1500)).numbers",
        "positions_stay_on_the_screen",
        "1500 is outside the screen",
    ),
    (
        "dialect",
        "if len(numbers) != count:",
        "if False:",
        "malformed_replies_are_refused",
        "raise ActionError",
    ),
    (
        "dialect",
        "if kind in accepts",
        "if kind is not Swipe",
        "the_prompt_mentions_every_action",
        "mention each accepted",
    ),
    ("reward", "len(turn.reply_ids)", "float('nan')", "finite", "nan"),
    ("reward", "for turn in episode.turns]", "for turn in episode.turns[1:]]", "finite", "values"),
    ("reward", "per_token *", "per_token / len(turn.info['gone']) *", "finite", "KeyError: 'gone'"),
]


@pytest.mark.parametrize(("kind", "old", "new", "check", "reason"), BROKEN)
def test_a_broken_copy_fails_with_a_reason(
    request, tmp_path, kind, old, new, check, reason
) -> None:
    if kind in ("driver", "capture"):
        request.getfixturevalue("adb_server")
    target, *settings = EXAMPLES[kind]
    code = (EXTEND / f"{kind}.py").read_text()
    assert old in code
    copy = f"broken_{BROKEN.index((kind, old, new, check, reason))}"
    (tmp_path / f"{copy}.py").write_text(code.replace(old, new))
    name = f"{tmp_path}/{copy}.py:{target.partition(':')[2]}"
    (broken,) = (one for one in checks(kind, name, *settings) if one.name == check)
    with pytest.raises((AssertionError, AgentRLError, KeyError)) as raised:
        broken()
    assert reason in describe_failure(raised.value)


BROKEN_IN_ENVIRONMENT = [
    (
        "env",
        "self.seed, self.turn, self.score = seed, 0, 0",
        "self.seed, self.turn, self.score = seed, 0, np.random.default_rng().random()",
        "info",
        "differs at step 0 of two episodes with seed 7",
    ),
    ("env", 'return "light", info', 'return "lamp", info', "player_expert", "KeyError: 'lamp'"),
    (
        "translator",
        "__name__)\n\n\nclass Expert",
        "__name__)\nLightsTranslator.to_action = lambda self, reply: (2, 2)\n\n\nclass Expert",
        "replies",
        "became (2, 2). To fix: actions must be in Box",
    ),
    (
        "player",
        'return "light", info["lit"]',
        'Expert.asked = getattr(Expert, "asked", 0) + 1\n        return "light", Expert.asked % 2',
        "repeatable",
        "draw from the given rng alone",
    ),
]


@pytest.mark.adb
@pytest.mark.parametrize(("kind", "old", "new", "check", "reason"), BROKEN_IN_ENVIRONMENT)
def test_a_broken_copy_of_an_environment_fails_with_a_reason(
    tmp_path, adb_server, kind, old, new, check, reason
) -> None:
    code = (EXTEND / "environment.py").read_text()
    assert old in code
    copy = f"broken_{kind}_{check[:6]}"
    code = code.replace(old, new).replace("environment:", f"{copy}:").replace("Lights-v0", copy)
    code = code.replace("ROUNDS = 3", "ROUNDS = 1")  # random touches seldom hit a light
    (tmp_path / f"{copy}.py").write_text(code)
    env = f"{tmp_path}/{copy}.py:{copy}"
    part = {"translator": "LightsTranslator", "player": "Expert"}.get(kind)
    named = (env,) if part is None else (f"{tmp_path}/{copy}.py:{part}", f"env.id={env}")
    (broken,) = (one for one in checks(kind, *named) if one.name == check)
    with pytest.raises((AssertionError, AgentRLError, KeyError)) as raised:
        broken()
    assert reason in describe_failure(raised.value)


@pytest.mark.adb
def test_the_state_of_a_game_may_have_numbers_of_numpy(tmp_path, adb_server) -> None:
    code = (EXTEND / "environment.py").read_text()
    code = code.replace('"turn": self.turn', '"turn": np.int64(self.turn)')
    code = code.replace("environment:", "numpy_state:").replace("Lights-v0", "numpy_state")
    (tmp_path / "numpy_state.py").write_text(code)
    found = checks("env", f"{tmp_path}/numpy_state.py:numpy_state")
    next(one for one in found if one.name == "player_expert")()


def agentrl(capsys, *arguments):
    code = cli.run(list(arguments))
    out, err = capsys.readouterr()
    return code, out + err


def test_the_command_prints_one_line_per_check_and_what_comes_next(capsys, monkeypatch) -> None:
    monkeypatch.chdir(EXTEND)
    code, said = agentrl(capsys, "check", "logger", "logger.py:CsvLogger", "digits=3")
    *lines, last = said.splitlines()
    assert code == 0
    assert len(lines) == 8
    assert all(line.startswith("ok      ") for line in lines)
    assert last.startswith("All checks pass. Next: agentrl train ")
    assert "logging=[console,file,logger.py:CsvLogger]" in last


def test_a_failed_check_names_the_line_of_the_user_s_code(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import json\n\n\ndef reward(episode):\n    return json.loads(episode.turns[0].reply)\n"
    )
    code, said = agentrl(capsys, "check", "reward", "mine.py:reward")
    assert code == 1
    assert "FAILED  The reward function returns a finite number, or one per turn: " in said
    assert "(mine.py:5)" in said
    assert "Traceback" not in said
    assert said.splitlines()[-1].endswith("Next: agentrl check reward mine.py:reward")
    _, said = agentrl(capsys, "check", "reward", "absent.py:reward")
    assert said.splitlines()[-1] == "Fix the first one, then check again."  # not the same command
    Path("config.yaml").write_text("env: {id: 'my_game:MyGame-v0'}\n")
    _, said = agentrl(capsys, "check", "env", "MyGame-v0")
    assert said.splitlines()[-1] == "Next: agentrl check env config.yaml"
    assert next_command("env", "job.yaml") == ("train", "job.yaml")
    assert next_command("env", "Mine-v0") == ("init", "--env", "Mine-v0")


def found_wrong(kind, target):
    """What is wrong with a target, checked in this process: that of a command starts slowly."""
    return "\n".join(f.detail for f in findings(kind, target, (), 60.0) if f.state == "wrong")


def test_a_name_that_an_object_of_agentrl_lacks_is_reported_with_those_it_has(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def reward(episode):\n    return float(len(episode.steps))\n")
    said = found_wrong("reward", "mine.py:reward")
    assert "'Episode' object has no attribute 'steps'" in said
    assert ". agentrl.types.Episode has " in said
    assert "seed, truncated_by, turns" in said


def test_a_reward_of_columns_is_checked_on_recorded_episodes(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "def reward(completions, solution, **kwargs):\n    return [float(x) for x in solution]\n"
    )
    Path("rows.jsonl").write_text('{"prompt": "One?", "solution": "1"}\n' * 2)
    said = found_wrong("reward", "mine.py:reward")
    assert "requires the column 'solution', which does not exist" in said
    assert "add run=RUN" in said
    job = ("env.id=QA-v0", "env.kwargs.data=rows.jsonl", "env.max_turns=1", "run.name=it")
    Path("job.yaml").write_text("env: {id: QA-v0}\n")
    played = ("--policy", "expert", "--episodes", "2", "--json")
    assert agentrl(capsys, "eval", "job.yaml", *job, *played)[0] == 0
    code, said = agentrl(capsys, "check", "reward", "mine.py:reward", "run=runs/it")
    assert code == 0, said


def test_a_suite_in_yaml_is_checked_like_a_class(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "tasks: [{name: lake, env: FrozenLake-v1, kwargs: {map_nam: 4x4}}]"
    Path("mine.yaml").write_text(text.replace("map_nam", "map_name"))
    assert agentrl(capsys, "check", "suite", "mine.yaml")[0] == 0
    Path("mine.yaml").write_text(text)
    code, said = agentrl(capsys, "check", "suite", "mine.yaml")
    assert (code, "map_nam: FrozenLake-v1 does not accept this argument" in said) == (1, True)


def test_a_suite_is_played_by_the_command_that_comes_next(capsys, monkeypatch) -> None:
    monkeypatch.chdir(EXTEND)
    code, said = agentrl(capsys, "check", "suite", "suite.py:Lakes")
    assert code == 0
    assert said.splitlines()[-1].endswith("Next: agentrl eval MODEL --suite suite.py:Lakes")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def reward(episode):\n    return 1 +\n", "SyntaxError"),
        ("import nowhere\n", "No module named 'nowhere'"),
        ("raise SystemExit(3)\n", "cannot be imported: SystemExit: 3"),
        ("def reword(episode):\n    return 1.0\n", "did you mean 'reword'"),
        ("reward = 3\n", "is not a function"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_a_failed_check(
    capsys, tmp_path, monkeypatch, code, reason
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"loaded_{abs(hash(code))}"
    Path(f"{name}.py").write_text(code)
    found = list(findings("reward", f"{name}.py:reward", (), 60.0))
    assert any(one.state == "wrong" and reason in one.detail for one in found), found


def test_code_that_ends_its_process_is_reported(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sick.py").write_text("import os\n\n\ndef reward(episode):\n    os._exit(3)\n")
    code, said = agentrl(capsys, "check", "reward", "sick.py:reward", "--deadline", "60")
    assert code == 1
    assert "its process ended with exit code 3" in said


def test_code_that_hangs_is_reported(tmp_path) -> None:
    code = (EXTEND / "suite.py").read_text().replace("return [", "time.sleep(60)\n        return [")
    (tmp_path / "sick.py").write_text(f"import time\n{code}")
    arguments = ("suite", f"{tmp_path}/sick.py:Lakes", (), 0.5)
    found = [one for one in findings_in_process(findings, arguments, 0.5) if one.state == "wrong"]
    assert len(found) == 4
    assert {one.detail for one in found} == {"not finished within 0.5 s"}


CALLABLES = """
import functools


def two(episode, other):
    return 1.0


def decorate(function):
    def inner(episode):
        return function(episode)

    return inner


class Counter:
    def __call__(self, episode):
        return 1.0


bound = functools.partial(two, other=1)
anonymous = lambda episode: 1.0
decorated = decorate(anonymous)
instance = Counter()


async def later(episode):
    return 1.0


async def later_batch(reward_inputs):
    return [{"overall": 1.0} for _ in reward_inputs]


def one_row(reward_inputs):
    return [{"overall": 1.0}]
"""


@pytest.mark.quick("decorated", "later_batch")
@pytest.mark.parametrize(
    "name", ["bound", "anonymous", "decorated", "instance", "later", "later_batch"]
)
def test_any_callable_is_checked_as_a_reward(tmp_path, name) -> None:
    (tmp_path / "callables.py").write_text(CALLABLES)
    for check in checks("reward", f"{tmp_path}/callables.py:{name}"):
        check()


def test_a_batch_function_is_checked_with_several_episodes(tmp_path) -> None:
    (tmp_path / "callables.py").write_text(CALLABLES)
    named = {one.name: one for one in checks("reward", f"{tmp_path}/callables.py:one_row")}
    with pytest.raises(RewardError, match="returned 1 rows for 2 episodes"):
        named["batches"]()


def test_names_are_printed_as_they_are(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, said = agentrl(capsys, "check", "reward", "a:b:c")
    assert "rewards=a:b:c: " in said  # not an emoji


def test_mistakes_in_the_command_are_config_errors(capsys) -> None:
    code, said = agentrl(capsys, "check", "loger", "file")
    assert (code, said.count("\n")) == (2, 1)
    assert "'loger' is not a kind of extension (did you mean 'logger'?)" in said
    with pytest.raises(ConfigError, match="agentrl check suite accepts no settings; remove a=1"):
        list(findings("suite", "minigames", ("a=1",), 60.0))
    with pytest.raises(
        ConfigError, match="model=FOLDER: agentrl check model accepts only path and chat"
    ):
        checks("model", "qwen_vl", "model=FOLDER")
    with pytest.raises(ConfigError, match=r"name its environment as well, such as env\.id="):
        list(findings("player", f"{EXTEND}/environment.py:Expert", (), 60.0))
    with pytest.raises(ConfigError, match=r"sampling\.shar: no such setting"):
        list(findings("sampler", f"{EXTEND}/sampler.py:Staircase", ("shar=0.4",), 60.0))


def test_a_user_s_tests_run_the_same_checks_and_fixtures(tmp_path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["agentrl.check.pytest_fixtures"]\n')
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n"
        "from agentrl.check import checks\n\n\n"
        f'@pytest.mark.parametrize("check", checks("reward", "{EXTEND}/reward.py:brief"))\n'
        "def test_my_reward(check):\n"
        "    check()\n\n\n"
        "def test_an_episode(episode):\n"
        "    assert len(episode.turns) == 3\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "test_my_reward[repeatable] PASSED" in done.stdout
    assert "6 passed" in done.stdout
