import csv
import io
import json
import os
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from agentrl.errors import ConfigError
from agentrl.extension_points import LOGGER
from agentrl.text_tables import ResultTable, flatten_results
from agentrl.training.monitoring import Reporter
from agentrl.training.monitoring.learning_curve import draw_curve, plot_curves, read_curves
from agentrl.training.monitoring.logger import (
    Logger,
    check_loggers,
    check_logins,
    open_loggers,
)
from agentrl.training.monitoring.loggers.console import HEADLINE, ConsoleDisplay, headline
from agentrl.training.monitoring.loggers.file import FileLogger
from agentrl.training.monitoring.progress import (
    PlannedWork,
    TimeEstimate,
    show_engine_start,
)


class NoArguments(Logger):
    def __init__(self) -> None: ...

    def log(self, stage, step, metrics) -> None: ...


def run_a_job(folder: Path, names: list[str]) -> None:
    with Reporter(folder, names, PlannedWork(steps=3)) as reporter:
        reporter.stage("warm start")
        reporter.warm_start(1, {"loss": 2.0}, total=10)
        reporter.result("expert", {"accuracy": 1.0, "reward": 10.0})
        reporter.result("before", {"sampled": {"accuracy": 0.4}, "greedy": {"accuracy": 0.6}})
        for step in (1, 2, 3):
            reporter.stage("reinforcement")
            reporter.progress(1, 2, "step: 5 turns")
            reporter.log(step, {"train/accuracy": 0.4 + step / 10, "rollout/tokens_per_s": 900})
        reporter.evaluation(3, {"accuracy": 0.8})
        reporter.finish({"expert": {"accuracy": 1.0}, "seconds": {"train": 3.0}})


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_file_holds_every_number_with_its_stage(tmp_path: Path) -> None:
    run_a_job(tmp_path, ["file"])
    entries = metrics(tmp_path)
    assert entries[0] | {"time": 0} == {"stage": "warm start", "step": 1, "time": 0, "loss": 2.0}
    assert [e["step"] for e in entries if e["stage"] == "reinforcement"] == [1, 2, 3]
    assert {"sampled/accuracy": 0.8}.items() <= entries[-1].items()
    assert (tmp_path / "stage").read_text() == "reinforcement"


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    with Reporter(tmp_path, ["file"], PlannedWork(steps=1)) as reporter:
        reporter.log(1, {"loss": float("nan"), "reward": float("inf")})
    (entry,) = metrics(tmp_path)
    assert entry["loss"] is None
    assert entry["reward"] is None


def test_a_resumed_job_drops_repeated_steps(tmp_path: Path) -> None:
    run_a_job(tmp_path, ["file"])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "reinf')
    with Reporter(tmp_path, ["file"], PlannedWork(steps=3)) as reporter:
        reporter.rewind(1)
        reporter.stage("reinforcement")
        reporter.log(2, {"train/accuracy": 0.9})
    steps = [e["step"] for e in metrics(tmp_path) if e["stage"] == "reinforcement"]
    assert steps == [1, 2]
    assert any(e["stage"] == "warm start" for e in metrics(tmp_path))
    with Reporter(tmp_path, ["file"], PlannedWork(steps=3)) as reporter:
        reporter.rewind(-1)
        reporter.stage("warm start")
        reporter.warm_start(1, {"loss": 3.0})
    assert [(e["stage"], e["loss"]) for e in metrics(tmp_path)] == [("warm start", 3.0)]


@pytest.mark.parametrize(("name", "advice"), [("consol", "did you mean 'console'"), ("x", "Known")])
def test_an_unknown_logger_is_a_config_error(tmp_path: Path, name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        Reporter(tmp_path, [name], PlannedWork())


def test_a_logger_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrl.training.monitoring.logger.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'agentrl-screens\[wandb\]'"):
        check_loggers(["console", "wandb"])


def test_a_logger_with_a_question_mark_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrl.training.monitoring.logger.find_spec", lambda name: None)
    (only,) = open_loggers(tmp_path, ["file", "file?", "wandb?"], PlannedWork())
    only.close()
    with pytest.raises(ConfigError, match="did you mean 'wandb'"):
        check_loggers(["wand?"])


CSV_LOGGER = f"{Path(__file__).parents[3]}/examples/extend/logger.py:CsvLogger"


def test_a_logger_of_the_user_s_gets_its_arguments(tmp_path: Path) -> None:
    entry = {"name": CSV_LOGGER, "kwargs": {"digits": 2}}
    run_a_job(tmp_path, ["file", entry, entry])
    steps, *_ = (tmp_path / "csv" / "reinforcement.csv").read_text().splitlines()
    assert steps.startswith("step,train/accuracy,rollout/tokens_per_s")
    with (tmp_path / "csv" / "reinforcement.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["1", "2", "3"]
    assert rows[0]["rollout/tokens_per_s"] == "9e+02"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"name": CSV_LOGGER, "kwargs": {"digit": 2}}, "does not accept kwargs={'digit': 2}"),
        (f"{__name__}:NoArguments", "constructor must take `run` and `amounts`, followed by"),
        ({"kwargs": {"digits": 2}}, "must be a name, or {name: "),
        ({"name": "file", "kwarg": {}}, "must be a name, or {name: "),
        (3, "3 must be a name"),
        ("collections:Counter", "is not a subclass of agentrl.training.monitoring.logger.Logger"),
    ],
)
def test_an_invalid_entry_is_a_config_error(entry: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        check_loggers([entry])


FAILING_LOGGER = """
import threading

from agentrl.training.monitoring.logger import Logger


class Raises(Logger):
    def log(self, stage, step, metrics):
        metrics.clear()
        raise RuntimeError("quota exceeded")

    def close(self):
        raise AssertionError("called again")


class Exits(Logger):
    def log(self, stage, step, metrics):
        raise SystemExit(3)


class Hangs(Logger):
    def log(self, stage, step, metrics):
        threading.Event().wait()


class HangsFirst(Logger):
    def __init__(self, run, amounts):
        threading.Event().wait()

    def log(self, stage, step, metrics):
        pass
"""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Raises", r"failed in log\(\): RuntimeError: quota exceeded \(failing_logger\.py:10\)"),
        ("Exits", r"failed in log\(\): SystemExit: 3"),
        ("Hangs", r"failed in log\(\): it did not return within 0\.5 s"),
    ],
)
def test_a_logger_that_fails_is_left_out_and_the_job_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    reason: str,
) -> None:
    monkeypatch.setattr("agentrl.training.monitoring.guarded_logger._DEADLINE_S", 0.5)
    (tmp_path / "failing_logger.py").write_text(FAILING_LOGGER)
    run_a_job(tmp_path, [f"{tmp_path}/failing_logger.py:{name}", "file"])
    (warning,) = [r.getMessage() for r in caplog.records if "logging: " in r.getMessage()]
    assert re.search(reason, warning)
    assert {"sampled/accuracy": 0.8}.items() <= metrics(tmp_path)[-1].items()


def test_a_logger_whose_constructor_hangs_is_a_config_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrl.training.monitoring.guarded_logger._DEADLINE_S", 0.5)
    (tmp_path / "failing_logger.py").write_text(FAILING_LOGGER)
    with pytest.raises(ConfigError, match=r"HangsFirst cannot be opened: it did not return within"):
        run_a_job(tmp_path, [f"{tmp_path}/failing_logger.py:HangsFirst", "file"])


def test_if_one_logger_cannot_be_opened_the_others_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locked_logger.py").write_text(
        "from agentrl.training.monitoring.logger import Logger\n\n\n"
        "class Locked(Logger):\n"
        "    def __init__(self, run, amounts):\n        raise ValueError('no key')\n\n"
        "    def log(self, stage, step, metrics):\n        pass\n"
    )
    monkeypatch.chdir(tmp_path)
    closed, close = [], FileLogger.close
    monkeypatch.setattr(FileLogger, "close", lambda self: closed.append(close(self)))
    with pytest.raises(ConfigError, match=r"cannot be opened: ValueError: no key \(locked_logger"):
        open_loggers(tmp_path, ["file", "locked_logger.py:Locked"], PlannedWork())
    assert len(closed) == 1


def test_tensorboard_events_are_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run_a_job(tmp_path, ["tensorboard?"])
    (events,) = (tmp_path / "tensorboard").iterdir()
    content = events.read_bytes()
    assert b"reinforcement/train/accuracy" in content
    assert b"warm_start/loss" in content


def test_a_logger_with_an_account_needs_a_key_unless_it_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Logger, "is_installed", lambda: True)
    for name in ("WANDB_API_KEY", "WANDB_MODE", "SWANLAB_MODE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert check_logins(["console", "swanlab", "mlflow"]) == []
    with pytest.raises(ConfigError, match=r"Run `wandb login`, set WANDB_API_KEY, or set WANDB_"):
        check_logins(["wandb?"])
    with monkeypatch.context() as patched:
        patched.setenv("WANDB_MODE", "offline")
        assert check_logins(["wandb"]) == []
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password secret\n")
    assert check_logins(["wandb"]) == ["whether wandb accepts the API key"]
    monkeypatch.setenv("SWANLAB_MODE", "online")
    with pytest.raises(ConfigError, match="swanlab is not logged in"):
        check_logins(["swanlab"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://10.0.0.1:5000")
    assert "can be reached" in check_logins(["mlflow"])[0]


def test_wandb_gets_a_step_axis_for_each_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[dict[str, Any]] = []
    axes: dict[str, str] = {}
    run = SimpleNamespace(
        define_metric=lambda name, step_metric: axes.update({name: step_metric}),
        log=logged.append,
        finish=lambda: logged.append({}),
    )
    fake = SimpleNamespace(init=lambda **_: run, __spec__=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "wandb", fake)
    run_a_job(tmp_path, ["wandb"])
    assert axes["reinforcement/*"] == "reinforcement/step"
    assert logged[0] == {"warm_start/step": 1, "warm_start/loss": 2.0}
    assert logged[-1] == {}


def test_wandb_writes_the_numbers_offline_and_waits_for_no_network(tmp_path: Path) -> None:
    """The real library; its server would be at an address that never answers."""
    code = (
        "import sys; from pathlib import Path;"
        "from tests.training.monitoring.test_reporter import run_a_job;"
        "run_a_job(Path(sys.argv[1]), ['wandb'])"
    )
    places = dict.fromkeys(("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"), str(tmp_path))
    server = {"WANDB_MODE": "offline", "WANDB_BASE_URL": "http://10.255.255.1"}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "run"],
        cwd=Path(__file__).parents[3], env=os.environ | places | server,
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    logged = wandb_history(file.read_bytes())
    assert {"warm_start/step": 1, "warm_start/loss": 2}.items() <= logged[0].items()
    rows = [row for row in logged if "reinforcement/step" in row]
    assert [row["reinforcement/step"] for row in rows] == [1, 2, 3]
    assert [row["reinforcement/train/accuracy"] for row in rows] == pytest.approx([0.5, 0.6, 0.7])
    assert logged[-1]["evaluation/sampled/accuracy"] == 0.8


def wandb_history(content: bytes) -> list[dict[str, Any]]:
    """What was logged: records of checksum, length, kind and message, after 7 bytes of header."""
    from wandb.proto.wandb_internal_pb2 import Record

    found, place = [], 7
    while place < len(content):
        _, length, whole = struct.unpack_from("<IHB", content, place)
        assert whole == 1
        message = Record.FromString(content[place + 7 : place + 7 + length])
        place += 7 + length
        if items := message.history.item:
            found.append({"/".join(i.nested_key): json.loads(i.value_json) for i in items})
    return found


@pytest.mark.slow
def test_mlflow_continues_the_run_of_a_resumed_job(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run_a_job(tmp_path, ["mlflow"])
    run_a_job(tmp_path, ["mlflow"])
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("agentrl")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "reinforcement/train/accuracy")
    assert [m.step for m in history][:3] == [1, 2, 3]
    assert [m.value for m in history][:3] == pytest.approx([0.5, 0.6, 0.7])


def test_swanlab_writes_the_numbers_and_waits_for_no_network(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from tests.training.monitoring.test_reporter import run_a_job;"
        "run_a_job(Path(sys.argv[1]), ['swanlab'])"
    )
    quiet = {k: v for k, v in os.environ.items() if k != "SWANLAB_MODE"}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "run"],
        cwd=Path(__file__).parents[3], env=quiet | {"SWANLAB_API_HOST": "http://10.255.255.1"},
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (file,) = (tmp_path / "run" / "swanlab").glob("run-*/*.swanlab")
    content = file.read_bytes()
    assert b"reinforcement/train/accuracy" in content
    assert b"warm_start/loss" in content


def test_without_a_terminal_the_display_writes_plain_lines(tmp_path: Path) -> None:
    output = io.StringIO()
    run = tmp_path / "a-run-with-a-name-that-is-wider-than-its-table-of-results"
    display = ConsoleDisplay(run, PlannedWork(steps=4), Console(file=output, width=60))
    display.stage("reinforcement")
    display.log("reinforcement", 1, {"train/reward": 2.5, "rollout/episodes_per_s": 3.0})
    display.progress(1, 2, "not yet due")
    display.finish({"before": {"greedy": {"accuracy": 0.5, "[/x]": 1.0}}, "steps": 4})
    display.close()
    text = output.getvalue()
    assert "reinforcement 1  reward 2.5  episodes/s 3  eta" in text
    assert "not yet due" not in text
    assert "before greedy" in text
    assert not any(line != line.rstrip() or "━" in line for line in text.splitlines())
    assert f"\n{run}\n" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [60, 80, 110])
@pytest.mark.parametrize("count", [1, 6, 40])
def test_tables_of_results_fit_with_all_their_numbers(width: int, count: int) -> None:
    metrics = [f"metric_number_{k}" for k in range(9)]
    found = {
        f"step {step}": {name: step + k / 100 for k, name in enumerate(metrics)}
        for step in range(100, 100 + count)
    }
    console = Console(file=io.StringIO(), width=width)
    for table in ResultTable.of_metrics(found, may_turn=True).fold(width):
        console.print(table)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    text = " ".join(lines)
    assert all(f" {value:g} " in text for row in found.values() for value in row.values())
    assert all(f" {name} " in text for name in (*metrics, *found))


def test_on_a_terminal_the_display_is_live(tmp_path: Path) -> None:
    output = io.StringIO()
    console = Console(file=output, width=100, force_terminal=True, color_system=None)
    display = ConsoleDisplay(tmp_path, PlannedWork(steps=4), console)
    display.stage("reinforcement")
    display.log("reinforcement", 2, {"train/reward": 2.5})
    display.progress(3, 8, "step 3: 12 turns")
    display.close()
    text = output.getvalue()
    for word in ("reinforcement", "2/4", "reward", "2.5", "step 3: 12 turns", "elapsed", "eta"):
        assert word in text


def panel(display: ConsoleDisplay, width: int) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=width).print(display)
    return output.getvalue().splitlines()


def job_under_way(run: Path, metrics: dict[str, float]) -> ConsoleDisplay:
    """After step 200 of 400; everything that is still to come has shown its pace."""
    amounts = PlannedWork(steps=400, games_after=200)
    display = ConsoleDisplay(run, amounts, Console(file=io.StringIO()))
    display.stage("evaluation before, greedy")
    display.progress(100, 100, "")
    display.stage("reinforcement")
    display.log("reinforcement", 200, metrics)
    display.progress(1, 2, "step 201: 12 turns " * 20)
    return display


@pytest.mark.parametrize("width", [30, 80, 120])
def test_the_panel_fits_and_every_heading_has_its_value(tmp_path: Path, width: int) -> None:
    numbers = {name: 1234.5 + place for place, name in enumerate(HEADLINE)}
    display = job_under_way(tmp_path / ("run" * 60), numbers)
    title, bar, names, values, note = panel(display, width)
    assert max(map(len, (title, bar, names, values, note))) <= width
    assert "elapsed" in title
    assert set(bar.strip()) <= set("━╸╺")
    headings = names.replace("job eta", "job-eta").split()
    assert len(headings) == len(values.replace(" s", "s").split())
    assert headings[:3] == ["step", "eta", "job-eta"]


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("success", ["success", "accuracy"])
def test_the_panel_shows_the_main_metrics(tmp_path: Path, width: int, success: str) -> None:
    metrics = {
        "train/reward": -123.45, "train/turns": 24.0, f"train/{success}": 0.8125,
        "train/score": 178.75, "train/unreadable": 0.0156, "learner/loss": -0.0123,
        "learner/entropy": 0.4321, "learner/mismatch_max": 0.0009876, "rollout/void": 3.0,
        "rollout/turns_per_s": 180.8, "rollout/tokens_per_s": 12345.6,
        "rollout/episodes_per_s": 2.717,
    }  # fmt: skip
    title, _, names, values, _ = panel(job_under_way(tmp_path, metrics), width)
    assert "reinforcement" in title
    for name, value in {
        "step": "200/400", "reward": "-123.5", success: "0.8125", "tokens/s": "12,346",
        "episodes/s": "2.717",
    }.items():  # fmt: skip
        assert values[names.index(name) :].startswith(value), name
    for name in ("eta", "job eta"):
        assert values[names.index(name)].isdigit()


def test_the_panel_shows_only_the_current_stage(tmp_path: Path) -> None:
    display = ConsoleDisplay(tmp_path, PlannedWork(steps=4), Console(file=io.StringIO()))
    display.stage("baseline random")
    display.log("evaluation", 0, {"random/reward": 11.0})
    assert "11" in "".join(panel(display, 80))
    display.stage("reinforcement")
    assert "reward" not in "".join(panel(display, 80))
    display.log("reinforcement", 1, {"train/reward": 22.0})
    display.stage("reinforcement")
    assert "22" in "".join(panel(display, 80))
    display.stage("evaluation during")
    assert "reward" not in "".join(panel(display, 80))
    display.stage("reinforcement")
    assert "22" in "".join(panel(display, 80))


def test_the_panel_of_an_evaluation_counts_no_steps(tmp_path: Path) -> None:
    display = ConsoleDisplay(tmp_path, PlannedWork(), Console(file=io.StringIO()))
    display.stage("evaluation")
    display.progress(3, 8, "expert: 12 turns")
    text = "".join(panel(display, 80))
    assert "step" not in text.replace(str(tmp_path), "")
    assert "expert: 12 turns" in text


class Clock:
    """What the estimate takes for the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(
            "agentrl.training.monitoring.progress.time", SimpleNamespace(monotonic=lambda: self.now)
        )


def test_the_time_left_follows_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    estimate = TimeEstimate(PlannedWork(steps=10))
    estimate.step = 4  # resumed
    estimate.stage("warm start")
    clock.now += 30
    estimate.progress(1, 4)
    assert estimate.stage_left() == pytest.approx(90)
    estimate.stage("reinforcement")
    clock.now += 10
    estimate.progress(1, 2)
    assert estimate.stage_left() is None  # the duration of an update is not known yet
    clock.now += 10
    estimate.stepped(5)
    assert estimate.stage_left() == pytest.approx(100)
    assert estimate.share() == pytest.approx(0.5)


def test_the_first_episodes_are_too_few_to_estimate_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    estimate = TimeEstimate(PlannedWork())
    estimate.stage("evaluation before, sampled")
    clock.now += 20
    estimate.progress(10, 100)
    assert estimate.stage_left() is None
    clock.now += 10
    estimate.progress(25, 100)
    assert estimate.stage_left() == pytest.approx(90)
    estimate.stage("warm start")
    clock.now += 60
    estimate.progress(6, 600)
    assert estimate.stage_left() == pytest.approx(60 * 99)


def test_an_engine_that_blocks_its_process_is_reported_while_it_starts(tmp_path: Path) -> None:
    output, heard = io.StringIO(), threading.Event()
    console = Console(file=output, width=100, force_terminal=True, color_system=None)
    display = ConsoleDisplay(tmp_path, PlannedWork(steps=4), console)

    def progress(done: float, total: float, note: str) -> None:
        display.progress(done, total, note)
        if "1 s so far" in note:
            heard.set()

    display.stage("engine start")
    with show_engine_start("vllm", 2, progress):
        assert heard.wait(30)
    assert "starting 2 engines (vllm), 1 s so far" in " ".join(panel(display, 100))
    display.close()


def test_the_jobs_time_left_is_shown_once_every_pace_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    estimate = TimeEstimate(PlannedWork(steps=10, games_after=200))

    def spend(seconds: float, done: float, total: float) -> None:
        clock.now += seconds
        estimate.progress(done, total)

    estimate.stage("warm start")
    spend(50, 50, 100)
    assert estimate.job_left() is None
    estimate.stage("engine start")
    spend(50, 0, 1)
    for how, seconds in (("sampled", 80), ("greedy", 30)):
        estimate.stage(f"evaluation before, {how}")
        spend(seconds, 100, 100)
    estimate.stage("reinforcement")
    spend(4, 1, 2)
    assert estimate.job_left() is None  # the duration of an update is not known yet
    clock.now += 6
    estimate.stepped(1)
    assert estimate.job_left() == pytest.approx(9 * 10 + 200 * 0.3)
    for step in range(2, 11):
        estimate.stage("reinforcement")
        clock.now += 10
        estimate.stepped(step)
    assert estimate.job_left() == pytest.approx(200 * 0.3)
    estimate.stage("evaluation after, sampled")
    spend(10, 50, 100)
    assert estimate.job_left() == pytest.approx(10 + 100 * 0.3)
    spend(10, 100, 100)
    estimate.stage("evaluation after, greedy")
    assert estimate.job_left() == pytest.approx(100 * 0.2)
    spend(5, 25, 100)
    assert estimate.job_left() == estimate.stage_left() == pytest.approx(15)


def test_the_curve_shows_training_evaluations_and_players(tmp_path: Path) -> None:
    run_a_job(tmp_path, ["file"])
    curves = read_curves(tmp_path)["accuracy"]
    assert curves["sampled"] == {0: 0.4, 3: 0.8}
    assert curves["expert"] == {0: 1.0}
    assert list(curves["train"]) == [1, 2, 3]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_curve_has_room_for_any_number_of_players(tmp_path: Path) -> None:
    with Reporter(tmp_path, ["file"], PlannedWork(steps=1)) as reporter:
        for player in ("blind", "random", "mediocre", "careful", "expert"):
            reporter.result(player, {"accuracy": 0.5})
    assert (tmp_path / "curve.png").is_file()


def test_the_curve_of_a_run_with_a_chinese_name_draws_without_a_warning(tmp_path: Path) -> None:
    folder = tmp_path / "数字游戏"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text(
        '{"stage": "evaluation", "step": 0, "专家/accuracy": 1.0, "sampled/accuracy": 0.5}\n'
    )
    assert draw_curve(folder) == folder / "curve.png"  # a warning would be an error


def test_doing_nothing_does_not_flatten_the_curve(tmp_path: Path) -> None:
    with Reporter(tmp_path, ["file"], PlannedWork(steps=1)) as reporter:
        for player, reward in (("noop", -600.0), ("expert", 1.0)):
            reporter.result(player, {"reward": reward})
    assert read_curves(tmp_path)["reward"].keys() == {"expert"}


def test_the_curve_is_readable() -> None:
    one = {"random": {0: 0.2}, "expert": {0: 1.0}, "train": {1: 0.3, 2: 0.9}}
    figure = plot_curves({"accuracy": one, "reward": one})
    figure.canvas.draw()
    (legend,) = figure.legends
    below = legend.get_window_extent()
    for axes in figure.axes:
        assert not below.overlaps(axes.get_window_extent())
        assert all(tick == int(tick) for tick in axes.get_xticks())
        assert len({line.get_color() for line in axes.lines}) == 3
    assert [text.get_text() for text in legend.get_texts()] == ["random", "expert", "train"]


def test_a_failing_curve_does_not_hide_the_runs_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Path) -> None:
        raise IndexError("no such line style")

    monkeypatch.setattr("agentrl.training.monitoring.reporter.draw_curve", fail)
    with (
        pytest.raises(KeyError, match="the run"),
        Reporter(tmp_path, ["file"], PlannedWork(steps=1)),
    ):
        raise KeyError("the run")
    assert "no such line style" in caplog.text


def test_a_curve_that_cannot_be_written_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "curve.png").mkdir()
    run_a_job(tmp_path, ["file"])
    (record,) = caplog.records
    assert record.getMessage().startswith("the learning curve could not be drawn")
    assert record.exc_info is None


def test_without_numbers_there_is_no_curve(tmp_path: Path) -> None:
    assert draw_curve(tmp_path) is None


@pytest.mark.slow
def test_every_logger_survives_a_job_that_ends_at_once(tmp_path: Path) -> None:
    names = [name for name in LOGGER.names() if name not in ("wandb", "swanlab")]
    reporter = Reporter(tmp_path, names, PlannedWork())
    reporter.close()
    reporter.close()


def test_headline_selects_the_main_metrics() -> None:
    numbers = {"train/reward": 1.25, "learner/loss": 0.5, "seconds/update": 3.0}
    assert headline(numbers) == [("reward", "1.25"), ("loss", "0.5")]
    assert headline({"rollout/tokens_per_s": 12345.6}) == [("tokens/s", "12,346")]
    assert headline({"train/accuracy": 0.5}) == [("accuracy", "0.5")]
    both = {"train/accuracy": 0.5, "train/success": 1.0}
    assert headline(both) == [("success", "1"), ("accuracy", "0.5")]
    assert flatten_results(
        {"steps": 3, "engine_check": {"tokens": 8}, "a": {"b": {"c": 1.0}, "d": 2}}
    ) == {
        "a": {"d": 2},
        "a b": {"c": 1.0},
    }
