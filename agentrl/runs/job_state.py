"""State and stage of the job that works in a run's folder."""

from pathlib import Path
from typing import Literal

from agentrl.files import is_locked
from agentrl.runs.file_reading import read_text
from agentrl.runs.job_failure import read_failure
from agentrl.runs.metrics_file import STAGE_FILE
from agentrl.runs.run_folder import RunFolder
from agentrl.text.formatting import printable

State = Literal["running", "finished", "failed", "stopped"]
_LONGEST_STAGE = 200
"""Maximum length of a stage's name in characters; real names have about ten."""


def job_state(run: Path) -> State | None:
    """Return the state of a run's job, `failed` if an error ended it; None without a job.

    A job writes `summary.json` when it ends; if the job was resumed later, `state.json` is ahead.
    """
    worked_in = is_locked(run)
    if worked_in is None or worked_in:
        return "running" if worked_in else None
    if read_failure(run) is not None:
        return "failed"
    summary, state = RunFolder(run).read_summary(), RunFolder(run).read_state()
    # An evaluation writes its policy when it starts, and adds its results when it ends.
    if "policy" in summary:
        return "finished" if "reward" in summary else "stopped"
    ended = "steps" in summary and summary["steps"] == state.get("step")
    return "finished" if ended else "stopped"


def job_stage(run: Path) -> str | None:
    """Return a running job's stage, such as `warm start`, or None if unknown."""
    if not is_locked(run):
        return None
    return printable((read_text(run / STAGE_FILE) or "").strip()[:_LONGEST_STAGE]) or None
