"""Export an episode, a group or a run as a single file to share."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError
from agentrl.files import atomic_replace
from agentrl.replay import RecordedEpisode, Run

if TYPE_CHECKING:
    from agentrl.training.evaluation.suite_results import TaskResult


def write(run: Run, episode_id: str, path: Path) -> None:
    """Write one episode: screens with touches, replies and rewards.

    Args:
        run: the recorded run.
        episode_id: the episode's id.
        path: the file; its suffix selects the format: .html, .gif, .mp4 or .png.

    Raises:
        ConfigError: the episode or the format does not exist, a library is missing, or the file
            cannot be written.
    """
    from agentrl.viewer.export import episode_media
    from agentrl.viewer.export.html_pages import episode_page

    kinds: dict[str, Callable[[Run, RecordedEpisode], bytes]] = {
        ".html": episode_page,
        ".gif": episode_media.gif,
        ".mp4": episode_media.mp4,
        ".png": episode_media.contact_sheet,
    }
    if path.suffix not in kinds:
        raise ConfigError(f"{path}: must end in {', '.join(kinds)}")
    _save(path, kinds[path.suffix](run, run.episode(episode_id)))


def write_group(run: Run, group: str, path: Path) -> None:
    """Write the episodes of a group as an HTML page.

    Raises:
        ConfigError: the group does not exist, or the file cannot be written.
    """
    from agentrl.viewer.export.html_pages import group_page

    _check_html(path)
    _save(path, group_page(run, group))


def write_report(run: Run, path: Path) -> None:
    """Write a whole run as an HTML page: curves, tables, example episodes, configuration.

    Raises:
        ConfigError: the run cannot be read, or the file cannot be written.
    """
    from agentrl.viewer.export.run_report import report

    _check_html(path)
    _save(path, report(run))


def write_suite_report(results: "Sequence[TaskResult]", path: Path) -> None:
    """Write results of evaluation suites as an HTML page: charts with intervals, and tables.

    Raises:
        ConfigError: a task's results cannot be compared, or the file cannot be written.
    """
    from agentrl.viewer.export.suite_report import suite_report

    _check_html(path)
    _save(path, suite_report(results))


def write_pipeline_report(folder: Path) -> Path:
    """Write a pipeline's progress as an HTML page, `report.html` in its folder.

    Returns:
        The page's path.

    Raises:
        ConfigError: the folder has no pipeline, or the file cannot be written.
    """
    from agentrl.viewer.export.pipeline_report import pipeline_report

    page = folder / "report.html"
    _save(page, pipeline_report(folder))
    return page


def write_audit(run: Run, report: Mapping[str, Any], path: Path) -> None:
    """Write an audit's report as an HTML page: error rates, and the worst cases with screens.

    Raises:
        ConfigError: the file cannot be written.
    """
    from agentrl.viewer.export.html_pages import audit_page

    _check_html(path)
    _save(path, audit_page(run, report))


def _check_html(path: Path) -> None:
    if path.suffix != ".html":
        raise ConfigError(f"{path}: groups and reports are exported as pages; use FILE.html")


def _save(path: Path, content: bytes) -> None:
    """Write a file atomically, creating its folder if missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_replace(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error
