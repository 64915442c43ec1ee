import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from agentrl.errors import ConfigError
from agentrl.training.report import Reporter
from agentrl.training.report.curve import draw_curve, figure_of, read_curves
from agentrl.training.report.display import Display
from agentrl.training.report.loggers import LOGGERS, check_loggers, open_loggers
from agentrl.training.report.words import HEADLINE, flat, headline, span


def run_a_job(folder: Path, names: list[str]) -> None:
    with Reporter(folder, names, total_steps=3) as reporter:
        reporter.stage("warm start")
        reporter.cloning(1, {"loss": 2.0}, total=10)
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


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    with Reporter(tmp_path, ["file"], 1) as reporter:
        reporter.log(1, {"loss": float("nan"), "reward": float("inf")})
    (entry,) = metrics(tmp_path)
    assert entry["loss"] is None
    assert entry["reward"] is None


def test_a_resumed_job_drops_what_it_does_again(tmp_path: Path) -> None:
    run_a_job(tmp_path, ["file"])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "reinf')
    with Reporter(tmp_path, ["file"], 3) as reporter:
        reporter.rewind(1)
        reporter.stage("reinforcement")
        reporter.log(2, {"train/accuracy": 0.9})
    steps = [e["step"] for e in metrics(tmp_path) if e["stage"] == "reinforcement"]
    assert steps == [1, 2]
    assert any(e["stage"] == "warm start" for e in metrics(tmp_path))


@pytest.mark.parametrize(("name", "advice"), [("consol", "did you mean 'console'"), ("x", "Known")])
def test_an_unknown_logger_is_a_users_mistake(tmp_path: Path, name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        Reporter(tmp_path, [name], 1)


def test_a_logger_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrl.training.report.loggers.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'agentrl\[wandb\]'"):
        check_loggers(["console", "wandb"])


def test_a_logger_with_a_question_mark_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrl.training.report.loggers.find_spec", lambda name: None)
    (only,) = open_loggers(tmp_path, ["file", "file?", "wandb?"], 1)
    only.close()
    with pytest.raises(ConfigError, match="did you mean 'wandb'"):
        check_loggers(["wand?"])


def test_tensorboard_events_are_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run_a_job(tmp_path, ["tensorboard?"])
    (events,) = (tmp_path / "tensorboard").iterdir()
    content = events.read_bytes()
    assert b"reinforcement/train/accuracy" in content
    assert b"warm_start/loss" in content


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


def test_without_a_terminal_the_display_writes_plain_lines(tmp_path: Path) -> None:
    output = io.StringIO()
    display = Display(tmp_path, 4, Console(file=output, width=200))
    display.stage("reinforcement")
    display.log("reinforcement", 1, {"train/reward": 2.5, "rollout/episodes_per_s": 3.0})
    display.progress(1, 2, "not yet due")
    display.finish({"before": {"greedy": {"accuracy": 0.5, "[/x]": 1.0}}, "steps": 4})
    display.close()
    text = output.getvalue()
    assert "reinforcement 1  reward 2.5  episodes/s 3  left" in text
    assert "not yet due" not in text
    assert "before greedy" in text
    assert "\x1b" not in text


def test_on_a_terminal_the_display_is_live(tmp_path: Path) -> None:
    output = io.StringIO()
    console = Console(file=output, width=100, force_terminal=True, color_system=None)
    display = Display(tmp_path, 4, console)
    display.stage("reinforcement")
    display.log("reinforcement", 2, {"train/reward": 2.5})
    display.progress(3, 8, "step 3: 12 turns")
    assert display.seconds_left() is not None
    display.close()
    text = output.getvalue()
    for word in ("reinforcement", "2/4", "reward", "2.5", "step 3: 12 turns", "elapsed", "left"):
        assert word in text


def panel(display: Display, width: int) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=width).print(display)
    return output.getvalue().splitlines()


@pytest.mark.parametrize("width", [30, 80, 120])
def test_the_panel_fits_and_every_heading_has_its_value(tmp_path: Path, width: int) -> None:
    display = Display(tmp_path / ("run" * 60), 400, Console(file=io.StringIO()))
    display.stage("reinforcement")
    numbers = {name: 1234.5 + place for place, name in enumerate(HEADLINE)}
    display.log("reinforcement", 200, numbers)
    display.progress(1, 2, "step 201: 12 turns " * 20)
    title, bar, names, values, note = panel(display, width)
    assert max(map(len, (title, bar, names, values, note))) <= width
    assert set(bar.strip()) <= set("━╸╺")
    assert len(names.split()) == len(values.replace(" s", "s").split())
    assert names.split()[0] == "step"
    assert names.split()[-2:] == ["elapsed", "left"]
    assert ("reward" in names) == (width >= 80)


def test_the_panel_shows_the_numbers_of_the_present_stage_only(tmp_path: Path) -> None:
    display = Display(tmp_path, 4, Console(file=io.StringIO()))
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


def test_a_panel_of_what_does_not_train_counts_no_steps(tmp_path: Path) -> None:
    display = Display(tmp_path, 0, Console(file=io.StringIO()))
    display.stage("evaluation")
    display.progress(3, 8, "expert: 12 turns")
    text = "".join(panel(display, 80))
    assert "step" not in text.replace(str(tmp_path), "")
    assert "expert: 12 turns" in text


def test_the_time_left_follows_the_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("agentrl.training.report.display.time.monotonic", lambda: now)
    display = Display(tmp_path, 10, Console(file=io.StringIO()))
    display.rewind(4)
    display.stage("warm start")
    now += 30
    display.progress(1, 4, "")
    assert display.seconds_left() == pytest.approx(90)
    display.stage("reinforcement")
    assert display.seconds_left() is None
    now += 20
    display.log("reinforcement", 5, {})
    assert display.seconds_left() == pytest.approx(100)
    display.close()


def test_the_curve_shows_training_evaluations_and_players(tmp_path: Path) -> None:
    run_a_job(tmp_path, ["file"])
    curves = read_curves(tmp_path)["accuracy"]
    assert curves["sampled"] == {0: 0.4, 3: 0.8}
    assert curves["expert"] == {0: 1.0}
    assert list(curves["train"]) == [1, 2, 3]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_curve_has_room_for_any_number_of_players(tmp_path: Path) -> None:
    with Reporter(tmp_path, ["file"], 1) as reporter:
        for player in ("blind", "random", "mediocre", "careful", "expert"):
            reporter.result(player, {"accuracy": 0.5})
    assert (tmp_path / "curve.png").is_file()


def test_the_curve_is_readable() -> None:
    one = {"random": {0: 0.2}, "expert": {0: 1.0}, "train": {1: 0.3, 2: 0.9}}
    figure = figure_of({"accuracy": one, "reward": one})
    figure.canvas.draw()
    (legend,) = figure.legends
    below = legend.get_window_extent()
    for axes in figure.axes:
        assert not below.overlaps(axes.get_window_extent())
        assert all(tick == int(tick) for tick in axes.get_xticks())
        assert len({line.get_color() for line in axes.lines}) == 3
    assert [text.get_text() for text in legend.get_texts()] == ["random", "expert", "train"]


def test_a_curve_that_fails_does_not_hide_the_runs_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Path) -> None:
        raise IndexError("no such line style")

    monkeypatch.setattr("agentrl.training.report.reporter.draw_curve", fail)
    with pytest.raises(KeyError, match="the run"), Reporter(tmp_path, ["file"], 1):
        raise KeyError("the run")
    assert "no such line style" in caplog.text


def test_without_numbers_there_is_no_curve(tmp_path: Path) -> None:
    assert draw_curve(tmp_path) is None


def test_every_logger_survives_a_job_that_ends_at_once(tmp_path: Path) -> None:
    names = [name for name in LOGGERS if name != "wandb"]
    reporter = Reporter(tmp_path, names, 1)
    reporter.close()
    reporter.close()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1:00"), (185, "3:05"), (3725, "1:02:05")]
)
def test_spans_are_told_shortly(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_headlines_take_what_is_worth_a_look() -> None:
    numbers = {"train/reward": 1.25, "learner/loss": 0.5, "seconds/update": 3.0}
    assert headline(numbers) == [("reward", "1.25"), ("loss", "0.5")]
    assert flat({"steps": 3, "a": {"b": {"c": 1.0}, "d": 2}}) == {"a": {"d": 2}, "a b": {"c": 1.0}}
