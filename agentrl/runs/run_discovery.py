"""Find the runs in a folder."""

from pathlib import Path

from agentrl.errors import ConfigError
from agentrl.runs.run_folder import CONFIG_FILE

ARCHIVE = "archive"
"""Name of the folder of archived runs, next to the other runs."""


def find_runs(folder: Path) -> list[Path]:
    """Return the runs in a folder and in the folders of its sweeps and pipelines, newest first.

    Raises:
        ConfigError: the folder does not exist.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: no such folder. Start a job here, for example agentrl train sokoban, or "
            "pass the folder that contains your runs"
        )
    # Sweeps and pipelines keep their runs one folder level deeper.
    runs, groups = list[Path](), [folder]
    while groups:
        for file in (place := groups.pop()).glob("[!.]*"):
            if (file / CONFIG_FILE).is_file():
                runs.append(file)
            elif place == folder and file.is_dir() and file.name != ARCHIVE:
                groups.append(file)
    found = {run: (run / CONFIG_FILE).stat().st_mtime for run in runs}
    return sorted(found, key=lambda run: (found[run], run.name), reverse=True)


def is_folder_of_runs(path: str | Path) -> bool:
    """Return whether a folder contains runs or is empty, and is not a run itself."""
    folder = Path(path)
    is_run = (folder / CONFIG_FILE).is_file() or (folder / "episodes").is_dir()
    if is_run or not folder.is_dir():
        return False
    return bool(find_runs(folder)) or not any(folder.iterdir())
