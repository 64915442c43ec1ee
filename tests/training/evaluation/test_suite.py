"""Evaluation suites: what is played, reported and refused."""

import json
from pathlib import Path

import pytest

from agentrl import cli, replay
from agentrl.config import Config, EnvConfig, RewardConfig, load
from agentrl.errors import ConfigError
from agentrl.extension_points import SUITE
from agentrl.policies.engines.hf_engine import HFEngine
from agentrl.training.evaluation.evaluate_suite import evaluate_suite, summaries
from agentrl.training.evaluation.suite import SuiteEntry, entries_of

LAKES = f"{Path(__file__).parents[3]}/examples/extend/suite.py:Lakes"


@pytest.fixture
def own_suite(tmp_path, monkeypatch):
    """Writes a suite with some entries; returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, entries: str) -> str:
        Path(f"{name}.py").write_text(
            "from agentrl.training.evaluation.suite import EvaluationSuite, SuiteEntry\n\n\n"
            f"class Own(EvaluationSuite):\n    def entries(self):\n        return {entries}\n"
        )
        return f"{name}.py:Own"

    return write


def test_each_entry_is_played_and_recorded_by_itself(tmp_path) -> None:
    quiet = [f"run.dir={tmp_path}", "run.name=it", "logging=[]"]
    results = evaluate_suite("frozen_lake", LAKES, policy="random", overrides=quiet)
    assert list(results) == ["4x4", "4x4 slippery", "8x8", "8x8 slippery"]
    assert {result.episodes for result in results.values()} == {4}
    for name, result in results.items():
        assert result.run == tmp_path / f"it-{name.replace(' ', '_')}"
        saved = load(result.run / "config.yaml").env
        assert saved.kwargs["is_slippery"] == ("slippery" in name)
        written = json.loads((result.run / "summary.json").read_text())
        assert (written["suite"], written["entry"]) == (LAKES, name)
    rows = summaries(results)
    mean = sum(result.metrics["turns"] for result in results.values()) / 4
    assert rows["mean"]["turns"] == pytest.approx(mean, abs=1e-3)


class CountedEngine(HFEngine):
    starts = 0

    async def start(self) -> None:
        type(self).starts += 1
        await super().start()


def test_the_model_is_loaded_once_for_all_entries(own_suite, tmp_path) -> None:
    lakes = "{'map_name': '4x4'}), SuiteEntry(name='b', episodes=2, kwargs={'map_name': '8x8'}"
    name = own_suite("two_lakes", f"[SuiteEntry(name='a', episodes=2, kwargs={lakes})]")
    engine = [f"rollout.engine={__name__}:CountedEngine", "rollout.launcher=local"]
    quiet = [f"run.dir={tmp_path}/runs", "logging=[]", "rollout.max_new_tokens=1"]
    small = ["env.max_turns=1", "model.tiny={layers: 1, hidden: 32, heads: 1, kv_heads: 1}"]
    results = evaluate_suite("frozen_lake", name, overrides=[*engine, *quiet, *small])
    assert CountedEngine.starts == 1
    for entry, squares in (("a", "4x4"), ("b", "8x8")):
        run = results[entry].run
        assert run is not None
        assert load(run / "config.yaml").env.kwargs["map_name"] == squares
        assert len(replay.open(run).episodes()) == results[entry].episodes == 2


def test_the_command_prints_a_row_per_entry(tmp_path, capsys) -> None:
    shown = [f"run.dir={tmp_path}", "logging=[console]", f"eval.suite={LAKES}"]
    command = ["eval", "frozen_lake", *shown, "--policy", "random", "--episodes", "1"]
    assert cli.run(command) == 0
    said, progress = capsys.readouterr()
    assert "evaluation: 8x8 slippery" in progress
    for row in ("4x4", "8x8", "mean", "recorded: "):
        assert row in said
    assert cli.run([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["entries"]["8x8"]["episodes"] == 1
    assert set(found["runs"]) == {"4x4", "4x4 slippery", "8x8", "8x8 slippery"}
    assert cli.run([*command, "--demos"]) == 2


def test_an_entry_of_the_job_s_own_environment_keeps_its_settings() -> None:
    env = EnvConfig(id="NumberGame-v0", kwargs={"digits": 2, "cards": 4}, max_turns=24)
    config = Config(env=env, rewards=[RewardConfig(function="env_reward")])
    config.eval.kwargs = {"cards": 3}
    own = SuiteEntry(name="x", kwargs={"moved": True}, episodes=5).applied_to(config)
    assert own.env.kwargs == {"digits": 2, "cards": 3, "moved": True}
    assert own.env.max_turns == 24
    assert own.eval.kwargs == {}
    assert (own.eval.episodes, own.eval.first_seed) == (5, config.eval.first_seed)
    assert own.rewards == config.rewards
    other = SuiteEntry(name="x", env_id="Snake-v0", max_turns=9, first_seed=3).applied_to(config)
    assert (other.env.id, other.env.kwargs, other.env.max_turns) == ("Snake-v0", {}, 9)
    assert (other.rewards, other.eval.first_seed) == ([], 3)


@pytest.mark.parametrize("name", SUITE.names())
def test_built_in_suites_have_entries(name: str) -> None:
    assert len(entries_of(name)) > 3


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ("[]", "entries() is empty"),
        ("[SuiteEntry(name='a'), SuiteEntry(name='a')]", "two entries are named 'a'"),
        ("[SuiteEntry(name='a', episodes=0)]", "'a' has episodes=0; at least 1"),
        ("[SuiteEntry(nam='a')]", "its entries fail: TypeError"),
        (
            "[SuiteEntry(name='a'), SuiteEntry(name='b', env_id='Lake-v1')]",
            "entry 'b': env.id: no environment 'Lake-v1'",
        ),
        (
            "[SuiteEntry(name='a'), SuiteEntry(name='b', kwargs={'depth': 3})]",
            "entry 'b': env.kwargs.depth: FrozenLake-v1 takes no such argument",
        ),
    ],
)
def test_a_mistake_is_found_before_anything_is_played(
    own_suite, tmp_path, entries: str, reason: str
) -> None:
    name = own_suite(f"suite_{abs(hash(reason))}", entries)
    quiet = [f"run.dir={tmp_path}/runs", "logging=[]"]
    with pytest.raises(ConfigError) as raised:
        evaluate_suite("frozen_lake", name, policy="random", overrides=quiet)
    assert reason in str(raised.value)
    assert f"eval.suite={name}" in str(raised.value)
    assert not (tmp_path / "runs").exists()


def test_an_unknown_suite_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'minigames'"):
        load("frozen_lake", ["eval.suite=minigame"])
    with pytest.raises(ConfigError, match=r"eval\.suite is not set"):
        evaluate_suite("frozen_lake", policy="random")
