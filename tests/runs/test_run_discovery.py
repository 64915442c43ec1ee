"""Finding runs in a folder."""

import pytest

from agentrl.errors import ConfigError
from agentrl.runs.run_discovery import find_runs, is_folder_of_runs
from agentrl.runs.run_summary import summarize


def test_runs_of_sweeps_are_found_and_archived_ones_are_not(tmp_path):
    for name in ("lake-1", "sweep/seed=0", "archive/old", ".deleted/gone"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").write_text("seed: 3\n")
    found = [path.relative_to(tmp_path).as_posix() for path in find_runs(tmp_path)]
    assert sorted(found) == ["lake-1", "sweep/seed=0"]
    assert summarize(tmp_path / "sweep/seed=0", tmp_path).name == "sweep/seed=0"
    assert is_folder_of_runs(tmp_path)
    assert not is_folder_of_runs(tmp_path / "lake-1")
    (tmp_path / "empty").mkdir()
    assert is_folder_of_runs(tmp_path / "empty")
    assert not is_folder_of_runs(tmp_path / "absent")
    with pytest.raises(ConfigError, match="no such folder"):
        find_runs(tmp_path / "absent")
