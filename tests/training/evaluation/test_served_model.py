"""A model behind a server plays: `agentrl eval` and `play` with rollout.engine=remote."""

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentrl import replay
from agentrl.cli import run as agentrl
from agentrl.policies.engines import remote_engine
from tests.policies.completions_server import Server, ok, refusal, reply, serving

KEY = "sk-secret-5678"
LAKE = [
    "frozen_lake", "env.max_turns=8", "rollout.engine=remote", "rewards=[]", "eval.rings=null",
]  # fmt: skip
"""Scored by the environment: no process of reward functions for each job."""
WAY = ["down", "down", "right", "right", "down", "right"]


def guide(body: dict[str, Any]) -> Any:
    """Knows the way over the lake from the last square it was shown."""
    _, row, _, column = body["messages"][-1]["content"].split()
    square = (int(row), int(column))
    seen, at = [], (0, 0)
    for step in WAY:
        seen.append(at)
        at = (at[0] + (step == "down"), at[1] + (step == "right"))
    return ok(reply(f"<action>{WAY[seen.index(square)]}</action>"))


def answer(body: dict[str, Any]) -> Any:
    return ok(reply("Hello!")) if body["max_tokens"] == 1 else guide(body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(remote_engine, "_BACKOFF_S", 0.01)
    with serving() as server:
        server.usual = answer
        yield server


def play(server: Server, folder: Path, command: str, *arguments: str) -> int:
    where = [f"rollout.endpoint.url={server.url}", f"run.dir={folder}", "logging=[]"]
    return agentrl([command, *LAKE, *where, *arguments])


def recorded(folder: Path) -> Path:
    (run,) = folder.iterdir()
    return run


def test_held_out_seeds_are_played_and_recorded(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    key = "rollout.endpoint.api_key_env=TEST_KEY"
    rewards = "rewards=[{function: env_reward}, {function: 'agentrl.rewards.form:action'}]"
    assert play(server, tmp_path, "eval", key, rewards, "--episodes=5", "--json", "--greedy") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["reward"], found["turns"], found["void"]) == (1.0, 6.0, 0)
    assert found["model"] == "toy"
    run = recorded(tmp_path)
    assert run.name.startswith("eval-remote-frozen_lake-")
    games = replay.open(run).episodes()
    assert {(game.split, game.label, game.reward) for game in games} == {
        ("eval", "remote-greedy", 1.0)
    }
    assert {game.seed for game in games} == set(range(1_000_000, 1_000_005))
    turn = replay.open(run).episode(games[0].id).episode.turns[0]
    assert (turn.shown, turn.reply) == ("row 0 column 0", "<action>down</action>")
    assert (turn.prompt_ids, turn.reply_ids, turn.reply_logprobs) == ((), (), ())
    settings = yaml.safe_load((run / "config.yaml").read_text())["rollout"]["endpoint"]
    assert (settings["model"], settings["api_key_env"]) == ("toy", "TEST_KEY")
    assert json.loads((run / "summary.json").read_text())["policy"] == "toy"
    assert all(output["Authorization"] == f"Bearer {KEY}" for output in server.headers)
    for file in (path for path in run.rglob("*") if path.is_file()):
        content = file.read_bytes()
        assert KEY.encode() not in (gzip.decompress(content) if file.suffix == ".gz" else content)


def test_concurrent_requests_stay_within_the_limit(server: Server, tmp_path: Path) -> None:
    assert play(server, tmp_path, "eval", "--episodes=8", "rollout.concurrency=2") == 0
    assert 1 <= server.most_at_once <= 2


def test_a_server_failure_is_not_a_lost_game(server: Server, tmp_path: Path) -> None:
    server.answers.append(ok(reply("Hello!")))  # as the job is checked
    server.answers.append(ok(reply("Hello!")))  # as the rollouts begin
    server.answers += [refusal(400, "no"), ok(reply("I", "content_filter"))]
    assert play(server, tmp_path, "eval", "--episodes=4") == 0
    games = replay.open(recorded(tmp_path)).episodes()
    void = [game for game in games if game.outcome.void]
    assert (len(games), len(void)) == (6, 2)
    errors = " ".join(str(game.error) for game in void)
    assert "returned status 400: 'no'" in errors
    assert "content filter" in errors
    assert {str(game.error).partition(":")[0] for game in void} == {
        "EndpointRefused",
        "EngineError",
    }


def test_a_hostile_reply_costs_a_turn_and_is_recorded_as_it_came(
    server: Server, tmp_path: Path
) -> None:
    replies = {
        "x" * (1 << 20): "no complete",
        "<action>\0</action>": "actions are",
        "<action>\ud800</action>": "actions are",
        "<script>alert(1)</script><action>down</action><action>down</action>": "2 complete",
        "<|im_end|><|vision_start|><image>": "no complete",
        "<action>tap(NaN, 1e999)</action>": "actions are",
        "": "no complete",
    }
    server.answers.extend([ok(reply("Hello!"))] * 2)
    server.answers.extend(ok(reply(text)) for text in replies)
    arguments = ("--episodes=1", "--greedy", f"env.max_turns={len(replies)}")
    assert play(server, tmp_path, "eval", *arguments) == 0
    (game,) = replay.open(recorded(tmp_path)).episodes()
    assert game.truncated_by == "turns"
    turns = replay.open(recorded(tmp_path)).episode(game.id).episode.turns
    assert [turn.reply for turn in turns] == [text.replace("\ud800", "\\ud800") for text in replies]
    for turn, words in zip(turns, replies.values(), strict=True):
        assert words in str(turn.parse_error)
        assert len(str(turn.parse_error)) < 300
    assert agentrl(["export", str(recorded(tmp_path)), str(tmp_path / "game.html")]) == 0
    assert "<script>alert" not in (tmp_path / "game.html").read_text()


def test_a_server_that_only_fails_ends_the_evaluation(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers += [ok(reply("Hello!"))] * 2
    server.usual = lambda body: refusal(400, "never")
    assert play(server, tmp_path, "eval", "--episodes=2", "rollout.max_refills=1") == 1
    assert "2 of 2 episodes are void" in capsys.readouterr().err


def test_sigterm_ends_an_evaluation_in_order(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def terminate(body: dict[str, Any]) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        server.over.wait(20)
        return ok(reply("too late"))

    server.answers += [ok(reply("Hello!"))] * 2
    server.usual = terminate
    before = signal.signal(signal.SIGTERM, lambda number, frame: server.over.set())
    try:
        assert play(server, tmp_path, "eval", "--episodes=1", "rollout.max_refills=0") == 143
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "terminated: stopping" in caplog.text
    assert not [*tmp_path.iterdir()]  # nothing was recorded


def test_episodes_played_by_a_server_are_trained_on(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(server, tmp_path / "demo", "eval", "--demos", "--episodes=3") == 0
    assert play(server, tmp_path / "eval", "eval", "--episodes=3") == 0
    demo, held_out = recorded(tmp_path / "demo"), recorded(tmp_path / "eval")
    assert demo.name.startswith("demo-remote-frozen_lake-")
    assert {game.split for game in replay.open(demo).episodes()} == {"demo"}
    command = ["train", "frozen_lake", "--dry-run", "warm_start.player=null", "rollout.engine=hf"]
    capsys.readouterr()
    assert agentrl([*command, f"warm_start.recorded=[{demo},{held_out}]"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "3 episodes with 18 turns" in output
    assert "3 of held-out seeds" in output
    assert agentrl(["export", str(demo), str(tmp_path / "best.jsonl"), "--min-reward=1"]) == 0
    assert len((tmp_path / "best.jsonl").read_text().splitlines()) == 3
    assert agentrl(["rescore", str(demo), "--reward", "agentrl.rewards.form:action"]) == 0


def test_an_episode_can_be_watched(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(server, tmp_path, "play", "--policy=model", "--seed=3") == 0
    assert "terminated after 6 turns, reward 1" in capsys.readouterr().out
    run = recorded(tmp_path)
    assert run.name.startswith("play-remote-")
    (game,) = replay.open(run).episodes()
    assert (game.split, game.label, game.seed) == ("demo", "remote", 3)


def test_a_run_is_played_by_a_server_in_place_of_its_model(server: Server, tmp_path: Path) -> None:
    assert play(server, tmp_path / "first", "eval", "--episodes=1") == 0
    run = str(recorded(tmp_path / "first"))  # has no model
    again = ["eval", run, "--episodes=2", f"run.dir={tmp_path / 'again'}"]
    assert agentrl(again) == 0
    assert len(replay.open(recorded(tmp_path / "again")).episodes()) == 2


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("train", [], "cannot be trained. Use it with `agentrl eval`"),
        ("train", ["--dry-run"], "cannot be trained"),
        ("eval", ["--checkpoint=best"], "checkpoint"),
        ("eval", ["rollout.engine_kwargs={top_p: 1}"], "rollout.endpoint.extra_body"),
        ("eval", ["rollout.endpoint.api_key_env=TEST_NO_KEY"], "TEST_NO_KEY"),
        ("eval", ["rollout.endpoint.model=other"], "rollout.endpoint.model='other'"),
        ("play", ["--policy=model", "rollout.endpoint.url=http://127.0.0.1:1/v1"], "ConnectError"),
    ],
)
def test_impossible_settings_are_rejected_before_any_work(
    server: Server, tmp_path: Path, capsys: Any, command: str, arguments: list[str], words: str
) -> None:
    server.usual = lambda body: refusal(404, "no such model")
    assert play(server, tmp_path, command, *arguments) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_no_model_libraries_are_loaded(server: Server, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys("
        "('torch', 'transformers', 'tokenizers', 'safetensors', 'ray', 'vllm', 'openai')));"
        "from agentrl.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    where = (f"rollout.endpoint.url={server.url}", f"run.dir={tmp_path}", "--episodes=1")
    done = subprocess.run(
        [sys.executable, "-c", code, "eval", *LAKE, *where, "rollout.launcher=ray"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "toy" in done.stdout


@pytest.mark.adb
def test_phone_screenshots_and_stop_texts_of_the_dialect_are_sent_to_the_server(
    adb_server: Any, server: Server, tmp_path: Path
) -> None:
    click = {"name": "mobile_use", "arguments": {"action": "click", "coordinate": [500, 500]}}
    server.usual = lambda body: ok(reply(f"<tool_call>{json.dumps(click)}"))
    phones = ["devices.source=virtual:2", "env.kwargs.rounds=1", "env.max_turns=2"]
    phones += ["env.dialect=qwen3-vl-mobile-use", "eval.rings=null"]
    where = [f"rollout.endpoint.url={server.url}", f"run.dir={tmp_path}", "logging=[]"]
    code = agentrl(
        ["eval", "number_game", "rollout.engine=remote", *phones, *where, "--episodes=2"]
    )
    assert code == 0
    kinds = {part["type"] for part in server.asked[-1]["messages"][-1]["content"]}
    assert "image_url" in kinds
    assert server.asked[-1]["stop"] == ["</tool_call>"]
    run = replay.open(recorded(tmp_path))
    games = run.episodes()
    assert len(games) == 2
    turn = run.episode(games[0].id).episode.turns[0]
    assert (turn.reply[-12:], turn.parse_error) == ("</tool_call>", None)
