"""Shift the timestamps of a recorded run into the past."""

import json
import os
from pathlib import Path

from tests.replay.packs import age_frames


def age(run: Path, seconds: float = 7200.0) -> None:
    """Shift all recording and touch times by this many seconds."""
    for lines in (run / "episodes").glob("*.jsonl"):
        entries = [json.loads(line) for line in lines.read_text().splitlines()]
        for entry in entries:
            if "time" in entry:
                entry["time"] -= seconds
        lines.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    age_frames(run, seconds)
    for file in run.rglob("*.*"):
        if file.is_file():
            touched = file.stat().st_mtime - seconds
            os.utime(file, (touched, touched))
