"""How a job that fails says so: in its folder, in the list of runs, and by what it suggests."""

import json
import logging
from contextlib import suppress
from pathlib import Path

import pytest

from agentrl.cli import run as run_command
from agentrl.config import Config, RunConfig
from agentrl.errors import (
    ConfigError,
    DeviceOffline,
    EnvCrashed,
    EnvError,
    LearnerError,
    LearnerLost,
    RewardError,
)
from agentrl.runs.job_failure import may_pass, read_failure
from agentrl.runs.job_state import job_state
from agentrl.runs.resume_state import ResumeState
from agentrl.runs.run_folder import RunFolder
from agentrl.runs.run_summary import summarize
from agentrl.training.job import Job, run_job


class FailingJob(Job[None]):
    """A job that works for a step, and then ends with an error."""

    command, steps_key = "agentrl train", "train.steps"
    error: BaseException | None = None

    def plan(self, *, restored):
        return None

    def is_finished(self, summary):
        return False

    async def run(self, plan: None, folder: RunFolder, state: ResumeState, *, resumed: bool):
        logging.getLogger("agentrl.example").warning("about to fail")
        state.step = 1
        folder.save_state(state)
        if self.error is not None:
            raise self.error


def failing_with(error: BaseException | None) -> type[FailingJob]:
    return type("Failing", (FailingJob,), {"error": error})


def fail(tmp_path: Path, error: BaseException | None, resume: Path | None = None) -> Path:
    settings = Config(run=RunConfig(dir=str(tmp_path), name="one"))
    with suppress(BaseException):
        run_job(failing_with(error), settings, (), resume, lambda job: None)
    return tmp_path / "one"


def test_a_crashed_job_has_failed_and_keeps_its_error_and_log(tmp_path, capsys):
    run = fail(tmp_path, ZeroDivisionError("division by zero"))
    assert job_state(run) == "failed"
    failure = read_failure(run)
    assert (failure.type, failure.message) == ("ZeroDivisionError", "division by zero")
    assert "test_job_failure.py" in failure.traceback
    assert summarize(run).to_dict()["error"] == "ZeroDivisionError: division by zero"
    log = (run / "logs" / "job.log").read_text()
    assert "WARNING agentrl.example: about to fail" in log
    assert "Traceback" in log
    assert run_command(["runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "failed: ZeroDivisionError" in out
    assert "one failed: ZeroDivisionError: division by zero (traceback: " in out
    assert run_command(["runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "failed"


@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interrupted_job_has_stopped(end, tmp_path, caplog):
    run = fail(tmp_path, end)
    assert (job_state(run), read_failure(run)) == ("stopped", None)
    assert f"resume with: agentrl train --resume {run}" in caplog.text


def test_the_command_that_resumes_can_be_pasted_into_a_shell(tmp_path, caplog):
    folder = tmp_path / "my runs; $(id)"
    folder.mkdir()
    run = fail(folder, KeyboardInterrupt())
    assert f"resume with: agentrl train --resume '{run}'" in caplog.text


def test_a_resumed_job_forgets_its_earlier_error(tmp_path):
    run = fail(tmp_path, ZeroDivisionError())
    fail(tmp_path, None, resume=run)
    assert (job_state(run), read_failure(run)) == ("stopped", None)


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (DeviceOffline("adb:1 is offline"), True), (LearnerLost("a rank died"), True),
        (EnvCrashed("its process ended"), True), (OSError(28, "No space left on device"), True),
        (RewardError("my_reward raised"), False), (EnvError("my_game raised"), False),
        (LearnerError("training diverged"), False), (ZeroDivisionError(), False),
    ],
)  # fmt: skip
def test_resuming_is_suggested_only_where_it_can_help(error, helps, tmp_path, caplog):
    run = fail(tmp_path, error)
    assert may_pass(error) is read_failure(run).may_pass is helps
    assert ("resume with" in caplog.text) is helps
    assert ("fix the cause first" in caplog.text) is not helps


def test_an_existing_name_is_refused_before_the_job_is_checked(tmp_path):
    class Unchecked(FailingJob):
        def plan(self, config, *, restored):
            raise AssertionError("checked")

    (tmp_path / "one").mkdir()
    settings = Config(run=RunConfig(dir=str(tmp_path), name="one"))
    with pytest.raises(
        ConfigError, match="one already exists; resume it with agentrl train --resume"
    ):
        run_job(Unchecked, settings, (), None, lambda job: None)


def test_a_job_that_cannot_begin_leaves_no_folder(tmp_path):
    class Refused(FailingJob):
        async def run(self, plan, folder, state, *, resumed):
            raise ConfigError("rewards: cannot be scored")

    settings = Config(run=RunConfig(dir=str(tmp_path), name="one"))
    with pytest.raises(ConfigError):
        run_job(Refused, settings, (), None, lambda job: None)
    assert not (tmp_path / "one").exists()
