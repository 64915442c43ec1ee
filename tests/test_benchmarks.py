"""Benchmarks run, print their conditions, and compute their statistics correctly."""

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from safetensors.numpy import save_file

import agentrl

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compare_runs():
    return load("compare_runs")


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py", *map(str, arguments)],
        capture_output=True, text=True, timeout=170, env=os.environ | {"COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def by_seed(values):
    return {str(seed): value for seed, value in enumerate(values)}


@pytest.mark.parametrize(
    ("gains", "low", "high"),
    [
        # The resampled mean of n zeros and ones is Binomial(n, share of ones) / n.
        ([0, 1], 0.0, 1.0),  # 1/4 each of 0 and 1
        ([0, 0, 0, 0, 0, 1], 0.0, 0.5),  # P(at most 2 ones) = 0.938, P(at most 3) = 0.991
        ([-1, -1, -1, 0], -1.0, -0.25),  # P(4 of 4) = 0.316, P(0 of 4) = 0.004, P(1) = 0.047
    ],
)
def test_the_paired_interval_matches_the_bootstrap(compare_runs, gains, low, high):
    first = by_seed([0.5] * len(gains))
    second = by_seed([0.5 + gain for gain in gains])
    found = compare_runs.paired_interval(first, second)
    assert found == pytest.approx((low, np.mean(gains), high, len(gains)))


def test_the_paired_interval_of_many_games_matches_the_normal_one(compare_runs):
    rng = np.random.default_rng(5)
    before = rng.normal(0.5, 0.2, 400)
    gains = rng.normal(0.05, 0.1, 400)
    low, mean, high, _ = compare_runs.paired_interval(by_seed(before), by_seed(before + gains))
    error = 1.96 * gains.std() / 400**0.5
    assert (low, high) == pytest.approx((mean - error, mean + error), abs=5e-4)
    assert mean == pytest.approx(gains.mean())


def test_identical_runs_do_not_differ(compare_runs):
    scores = by_seed(np.random.default_rng(0).random(50))
    assert compare_runs.paired_interval(scores, scores) == (0.0, 0.0, 0.0, 50)


def test_seeds_of_only_one_run_are_ignored(compare_runs):
    first = {"1": 0.2, "2": 0.4, "3": 9.0}
    second = {"0": -9.0, "1": 0.3, "2": 0.5}
    assert compare_runs.paired_interval(first, second) == pytest.approx((0.1, 0.1, 0.1, 2))


def test_two_runs_are_compared_by_their_last_evaluations(tmp_path):
    for name, accuracy in (("a", 0.25), ("b", 0.5)):
        record = {
            "name": "after sampled",
            "by_seed": {seed: {"accuracy": accuracy} for seed in "12"},
        }
        stale = {**record, "by_seed": {"1": {"accuracy": 0.0}}}
        (tmp_path / name).mkdir()
        lines = "".join(json.dumps(entry) + "\n" for entry in (stale, record))
        (tmp_path / name / "evaluations.jsonl").write_text(lines)
    said = run("compare_runs", tmp_path / "a", tmp_path / "b")
    row = next(line for line in said.splitlines() if "after sampled" in line)
    for cell in ("2", "0.2500", "0.5000", "+0.2500", "[+0.2500, +0.2500]"):
        assert cell in row


def test_paired_games_of_one_run_show_the_gain_from_training(tmp_path):
    wins = {"before": [0, 0, 1, 0], "after": [1, 1, 1, 0]}
    records = [
        {
            "name": f"{when} {way}",
            "by_seed": {
                str(seed): {"reward": -9.0, "success": float(win)}
                for seed, win in enumerate(wins[when] if way == "sampled" else wins["after"])
            },
        }
        for when in wins
        for way in ("sampled", "greedy")
    ]
    lines = "".join(json.dumps(record) + "\n" for record in [*records, {**records[0], "name": "x"}])
    (tmp_path / "evaluations.jsonl").write_text(lines)
    sampled, greedy = (
        next(line for line in run("paired", tmp_path).splitlines() if way in line)
        for way in ("sampled", "greedy")
    )
    for cell in ("success", " 4 ", "0.250", "0.750", "+0.500", "+0.000 to +1.000"):
        assert cell in sampled
    assert "+0.000 to +0.000" in greedy
    assert "-9.000" in run("paired", tmp_path, "--metric", "reward")
    with pytest.raises(AssertionError, match="no metric 'luck'; choose from reward, success"):
        run("paired", tmp_path, "--metric", "luck")


def test_the_table_of_runs_names_the_metric_of_each_row(tmp_path):
    for name, metric in (("number", "accuracy"), ("sokoban", "success")):
        result = {"reward": 7.0, metric: 0.25, "episodes": 8}
        summary = {"random": result, "seconds": {"reinforcement": 90.0}}
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
    lines = run("table_of_runs", tmp_path / "number", tmp_path / "sokoban").splitlines()
    assert lines[0] == "| run | metric | random | episodes | minutes |"
    assert lines[2:] == [
        "| number | accuracy | 0.250 | 8 | 1.5 |",
        "| sokoban | success | 0.250 | 8 | 1.5 |",
    ]


def write_finished_run(run, wins):
    """Write the files of a run that won `wins` of 4 games in each evaluation."""
    games = {}
    (run / "model").mkdir(parents=True)
    save_file({"w": np.zeros((3, 5), np.float32)}, run / "model" / "model.safetensors")
    for when, won in wins.items():
        values = [float(number < won) for number in range(4)]
        games[when] = {str(seed): {"success": value} for seed, value in enumerate(values)}
    lines = "".join(
        json.dumps({"name": name, "step": 0, "by_seed": by_seed}) + "\n"
        for name, by_seed in games.items()
    )
    (run / "evaluations.jsonl").write_text(lines)
    summary = {"random": {"success": 0.25}, "after": {}, "seconds": {"start": 30, "warm start": 60}}
    (run / "summary.json").write_text(json.dumps(summary))
    warm = {"player": "noisy", "episodes": 9}
    config = {"warm_start": warm, "env": {"player_kwargs": {"noise": 0.8}}}
    (run / "config.yaml").write_text(json.dumps(config))
    (run / "episodes").mkdir()
    played = [("train", True), ("train", True), ("demo", True), ("demo", False), ("eval", True)]
    entries = "".join(
        json.dumps({
            "format": 4, "id": f"{split}-{number}", "split": split, "step": 0, "time": 1.0 + number,
            "env_id": "NumberLine-v0", "group": f"{split}-0-g0", "member": 0, "seed": number,
            "outcome": "terminated", "error": None, "device": None, "turns": 1, "tokens": 1,
            "seconds": 0.1, "env_reward": 0.0, "reward": 0.0, "truncated_by": None, "config": None,
            "metrics": {"success": float(won)},
        }) + "\n"
        for number, (split, won) in enumerate(played)
    )  # fmt: skip
    (run / "episodes" / "index-main.jsonl").write_text(entries)


def test_records_shows_finished_runs_beside_the_published_value(tmp_path):
    write_finished_run(
        tmp_path / "number_line-0", {"before sampled": 1, "after sampled": 2, "after greedy": 4}
    )
    write_finished_run(
        tmp_path / "number_line-1", {"before sampled": 1, "after sampled": 4, "after greedy": 4}
    )
    said = run("records", "number_line", "--runs", tmp_path, "--seeds", "0", "1")
    rows = [
        re.split(r" {2,}", line) for line in said.splitlines() if line.startswith("number_line")
    ]
    # Episodes, demonstrations, their level, random; Wilson's interval of 2 out of 4 wins.
    assert rows[0][1:8] == [
        "0", "2", "2", "0.500", "0.250", "0.250 (0.046 to 0.699)", "0.500 (0.150 to 0.850)",
    ]  # fmt: skip
    assert rows[0][8:] == ["1.000 (0.510 to 1.000)", "1.5", "1.00", "1.00"]
    # Student's interval of 0.5 and 1.0: 12.706 * 0.3536 / sqrt(2) = 3.177 on both sides.
    assert rows[2][1:4] == ["mean", "0.250", "0.750 (-2.427 to 3.927)"]
    assert "15 parameters from random weights, imitates the player 'noisy'" in said
    assert "GiGPO, Qwen2-VL-2B" in said
    only = run("records", "number_line", "--runs", tmp_path, "--no-train", "--seeds", "1", "2")
    assert len(re.findall("^number_line", only, re.MULTILINE)) == 1


def test_records_without_training_needs_a_finished_run(tmp_path):
    with pytest.raises(AssertionError, match="has no finished run taxi-0, taxi-1, taxi-2"):
        run("records", "taxi", "--runs", tmp_path, "--no-train")


def test_the_configurations_of_records_exist(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    records = load("records")
    for task in records.TASKS.values():
        config = agentrl.load_config(str(records.CONFIGS / f"{task.config}.yaml"), task.overrides)
        if task.budget is not None:
            episodes = config.train.steps * config.rollout.groups * config.rollout.group_size
            assert episodes <= task.budget


def test_ablations_show_the_difference_to_the_job_without_the_method(tmp_path):
    for name, won in (("plain", 1), ("keep_varied", 3)):
        for seed in (0, 1):
            run_folder = tmp_path / f"frozen_lake_maps-{name}-{seed}"
            write_finished_run(run_folder, {"after sampled": won, "after greedy": won + seed})
    said = run("ablations", "frozen_lake_maps", "--runs", tmp_path, "--seeds", "0", "1",
               "--only", "plain", "keep_varied")  # fmt: skip
    row = next(line for line in said.splitlines() if line.startswith("keep_varied"))
    # Half of the games differ by 1. Of 8 resampled games, Binomial(8, 1/2) do: 1 to 7 at 95%.
    assert re.split(r" {2,}", row.strip())[1:8] == [
        "plain", "0.750 0.750", "0.750", "+0.500 (+0.125 to +0.875)",
        "0.750 1.000", "0.875", "+0.500 (+0.125 to +0.875)",
    ]  # fmt: skip


def test_the_configurations_of_ablations_are_valid(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    ablations = load("ablations")
    (tmp_path / "teacher").mkdir()
    for study in ablations.STUDIES.values():
        for name in study.variants:
            settings = ablations.settings_of(study, name, tmp_path / "teacher")
            agentrl.load_config(study.config, settings)
            assert study.variants[name].against in study.variants


def test_our_side_of_the_sokoban_benchmark_counts_whole_episodes():
    job = {"size": 5, "boxes": 1, "picture": "rgb_array", "seconds": 0.01, "seed": 0}
    result = json.loads(run("sokoban", "--ours", json.dumps(job)))
    assert 1 <= result["episodes"] <= result["steps"] <= 120 * result["episodes"]
    assert 0 < result["generating"] < result["seconds"]


def test_conditions_name_the_command_the_machine_and_the_versions(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks/devices.py", "--rounds", "4"])
    lines = load("conditions").conditions("numpy", "nothing-at-all").splitlines()
    command, machine, busy, versions = (line.partition(":")[2].strip() for line in lines)
    assert command == "python benchmarks/devices.py --rounds 4"
    assert re.fullmatch(r".+, \d+ cores, \d+ GiB", machine)
    assert busy.endswith("15 minutes)")
    python = f"Python {platform.python_version()}"
    assert versions == f"{python}, numpy {np.__version__}, nothing-at-all not installed"


def test_the_gpu_benchmark_runs_without_a_gpu(monkeypatch, capsys):
    settings = ["--size=tiny", "--updates=1", "--rollouts=1", "--engines=hf"]
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "gpu.py"), *settings])
    monkeypatch.setenv("COLUMNS", "200")
    load("gpu").main()
    said = capsys.readouterr().out
    assert "gpu.py --size=tiny --updates=1 --rollouts=1 --engines=hf\nmachine:  " in said
    assert "FSDP2:    1 rank, 1 units; computes in float32" in said
    for row in ("as trees", "one by one", "hf"):
        assert re.search(rf"│ {row} +│ +[\d.]+ +│ +[\d,]+ +│", said)


def test_the_flops_of_an_update_match_torchs_count(tmp_path, monkeypatch):
    from torch.utils.flop_counter import FlopCounterMode

    monkeypatch.syspath_prepend(str(BENCHMARKS))
    gpu = load("gpu")
    folder = tmp_path / "model"
    gpu.build(folder, "tiny", "cpu")
    samples = gpu.drawn(gpu.adapter_for(folder), gpu.SIZES["tiny"])
    config = gpu.job(folder, gpu.SIZES["tiny"], shared=True, checkpointing=False)
    learner = gpu.Learner(gpu.LearnerSettings.of(config), folder)
    work = gpu.Work.of(learner, samples)
    with FlopCounterMode(display=False) as counted:
        learner.update(samples, 0)
    learner.close()
    # On the CPU torch does not count attention.
    assert work.flops - work.attention == pytest.approx(counted.get_total_flops(), rel=0.01)
    # Two prompts of 25 tokens, with four replies each of which seven tokens are inputs; products of
    # queries with keys and of weights with values, forward and backward.
    pairs = 2 * (sum(range(1, 26)) + 4 * sum(range(26, 33)))
    assert work.attention == 3 * (2 + 2) * 4 * 128 * pairs


@pytest.mark.slow
def test_trainer_benchmark_runs_with_or_without_trl():
    said = run("trainer", "--rounds=1", "--updates=2", "--steps=2", "--turns=4")
    assert re.search(r"memory: [\d.]+ MB after 2 updates", said)
    for row in (
        "32 images, 8 replies of 8 tokens",
        "ours",
        "ours, half of the groups have zero advantage",
    ):
        assert f"│ {row} " in said


@pytest.mark.slow
@pytest.mark.adb
def test_the_devices_benchmark_prints_its_conditions(adb_server):
    said = run("devices", "--rounds", 2, "--phones", 2, "--seconds", 0.2)
    assert "devices.py --rounds 2 --phones 2 --seconds 0.2\nmachine:  " in said
    assert f"versions: Python {platform.python_version()}, adbutils 2" in said
    for row in ("ours", "pure-python-adb", "adb subprocess", "2 phones, whole frames"):
        assert row in said


@pytest.mark.slow
@pytest.mark.adb
def test_the_rollout_benchmark_prints_its_conditions(adb_server):
    said = run("rollout", "--engine=hf", "--phones=4", "--games=2", "--demos=4", "--steps=2")
    assert "rollout.py --engine=hf --phones=4 --games=2 --demos=4 --steps=2\nmachine:  " in said
    assert f"versions: Python {platform.python_version()}, torch 2" in said
    assert "bare engine" in said


@pytest.mark.adb
@pytest.mark.slow
def test_every_game_of_a_chaos_run_is_accounted_for(adb_server):
    said = run("chaos", "--phones=2", "--minutes=0.1")
    asked, finished, screens = (
        int(re.search(rf"{what} *│ (\d+) ", said)[1])
        for what in ("requested", "finished", "screens compared")
    )
    assert asked == finished >= 4
    assert screens == 19 * finished  # ten rounds and nine button presses between them
    for nothing in ("lost", "counted twice", "screens that the game did not draw"):
        assert re.search(rf"{nothing} *│ 0 ", said)


@pytest.mark.slow
def test_two_ranks_each_hold_half_of_a_long_episode():
    printed = run("long_episode", "--tokens", 2000, "--ranks", 1, 2)
    assert printed.startswith("command:  python")
    kept = {int(n): int(mb) for n, mb in re.findall(r"^\| (\d) \| (\d+) \|", printed, re.M)}
    assert 0.4 * kept[1] < kept[2] < 0.6 * kept[1]


@pytest.mark.slow
def test_samplers_are_compared_with_intervals_of_students_t():
    said = run(
        "curriculum", "--seeds", 3, "--steps", 5, "--groups", 6, "--boards", 4, "--held-out", 3,
        "--target", 0.1,
    )  # fmt: skip
    rows = re.findall(r"(\d) +│ (uniform|solve_rate) +│ ([\d.]+)", said)
    after = {(int(seed), name): float(value) for seed, name, value in rows}
    assert len(after) == 6
    gains = [after[seed, "solve_rate"] - after[seed, "uniform"] for seed in range(3)]
    (line,) = re.findall(r"success after training, .*: (.+) \((.+) to (.+)\)", said)
    low, high = scipy.stats.t.interval(0.95, 2, np.mean(gains), scipy.stats.sem(gains))
    assert [float(number) for number in line] == pytest.approx(
        [np.mean(gains), low, high], abs=0.004
    )


@pytest.mark.slow
def test_the_benchmark_of_reward_functions_prints_rates_and_conditions():
    said = run("reward_functions", "--rounds=1", "--only", "veRL")
    assert "reward_functions.py --rounds=1 --only veRL\nmachine:  " in said
    (rate,) = re.findall(r"veRL, one answer +│ +([\d,]+) │ +[\d.]+ ", said)
    assert int(rate.replace(",", "")) > 100
