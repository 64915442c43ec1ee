"""Arguments and checks shared by the commands that start and resume jobs."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentrl.cli.command_completion import complete_config, complete_setting
from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from agentrl.config import Config

CONFIG = Annotated[
    str,
    typer.Argument(
        help="A YAML file, a packaged configuration, or with --resume a run folder.",
        metavar="CONFIG",
        autocompletion=complete_config,
    ),
]
OVERRIDES = Annotated[
    list[str] | None,
    typer.Argument(
        help="Overrides, such as optim.lr=1e-5.",
        metavar="KEY=VALUE",
        autocompletion=complete_setting,
    ),
]
DRY_RUN = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Check the job without running it, and print the settings that are not defaults.",
    ),
]
PRINT_CONFIG = Annotated[
    bool,
    typer.Option("--print-config", help="Print the whole configuration as YAML, and exit."),
]
RESUME = Annotated[
    bool,
    typer.Option(
        "--resume", help="Resume the run in folder CONFIG, or the newest run of a configuration."
    ),
]


def job_command(command: Callable[["JobOptions"], None]) -> Callable[..., None]:
    """Make a command that takes a job's arguments and its options, and can print its settings."""

    def call(
        config: CONFIG,
        overrides: OVERRIDES = None,
        dry_run: DRY_RUN = False,
        print_config: PRINT_CONFIG = False,
        resume: RESUME = False,
    ) -> None:
        options = JobOptions.of(config, overrides, dry_run=dry_run, resume=resume)
        if print_config:
            options.print_config()
        else:
            command(options)

    # functools.wraps would hide these parameters from Typer, which reads the innermost signature.
    call.__name__, call.__doc__ = command.__name__, command.__doc__
    return call


@dataclass(slots=True, kw_only=True, frozen=True)
class JobOptions:
    """The job that a command line selects, and the run to resume, if any."""

    config: str
    """A YAML file or a packaged configuration; the run's own file if a run is resumed."""
    settings: Sequence[str]
    """Overrides of settings, as key=value."""
    run: Path | None
    """Folder of the run to resume; None for a new run."""
    dry_run: bool
    """Only check the job."""

    @classmethod
    def of(
        cls, config: str, overrides: Sequence[str] | None, *, dry_run: bool, resume: bool
    ) -> "JobOptions":
        """Read the arguments of a command.

        Raises:
            ConfigError: an override lacks a value, or there is no run to resume.
        """
        settings = [text for text in overrides or () if "=" in text]
        others = [text for text in overrides or () if "=" not in text]
        # Also accept `CONFIG --resume RUN`, where the run is a second argument.
        if others and not (resume and len(others) == 1):
            raise ConfigError(f"{others[0]!r} must be written key=value, as in optim.lr=1e-5")
        run = _run_to_resume(others[0] if others else config, settings) if resume else None
        source = config if run is None else str(run / "config.yaml")
        return cls(config=source, settings=settings, run=run, dry_run=dry_run)

    def print_config(self) -> None:
        """Print the whole configuration, as YAML."""
        from agentrl import config as configuration

        text = configuration.to_yaml(configuration.load(self.config, self.settings).to_dict())
        typer.echo(text, nl=False)

    def check_folder(self) -> None:
        """Check that a new run can be created, or that the given one can be resumed.

        Raises:
            ConfigError: the run cannot be created or resumed.
        """
        from agentrl import config as configuration
        from agentrl.runs.run_folder import RunFolder

        if self.run is None:
            RunFolder.check_new(configuration.load(self.config, self.settings).run)
        else:
            RunFolder(self.run).check_trains()
            RunFolder(self.run).check_writable()

    def announce_resumed(self) -> None:
        """Print which run is resumed, if any."""
        if self.run is not None:
            file = self.run / "config.yaml"
            typer.echo(f"resuming {self.run} with its own configuration ({file})")


def _run_to_resume(target: str, overrides: Sequence[str]) -> Path:
    """Return the given run folder, or the configuration's newest (preferably unfinished) run."""
    if Path(target).is_dir():
        return Path(target)
    from agentrl import config as configuration
    from agentrl.runs.run_folder import missing_run, runs_of

    is_file = Path(target).is_file() or target.endswith((".yaml", ".yml"))
    if not (is_file or configuration.is_packaged(target)):
        raise ConfigError(
            f"--resume: {missing_run(target)}; or give a configuration to resume its newest run"
        )
    from agentrl.runs.job_state import job_state
    from agentrl.training.command_target import job_name

    job = configuration.load(target, overrides)
    run, named = job.run, job_name(target, job)
    found = runs_of(run, named)
    if not found:
        name = run.name or f"{named}-MMDD-HHMMSS"
        hint = _resume_of_another_name(job) or "name the folder of the run"
        raise ConfigError(f"--resume: {run.dir} contains no run {name!r}; {hint}")
    # Prefer unfinished runs, since a finished one has nothing left to do.
    return max(found, key=lambda path: (job_state(path) != "finished", path.stat().st_mtime))


def _resume_of_another_name(job: "Config") -> str:
    """Return how to resume the newest unfinished run of the same environment; '' without one."""
    from agentrl.runs.file_reading import as_object
    from agentrl.runs.job_state import job_state
    from agentrl.runs.run_discovery import find_runs
    from agentrl.runs.run_folder import RunFolder

    for path in find_runs(Path(job.run.dir)) if Path(job.run.dir).is_dir() else ():
        folder = RunFolder(path)
        settings, command = as_object(folder.read_config().get("env")), folder.command
        is_same = settings.get("id") == job.env.id
        if is_same and command is not None and job_state(path) in ("stopped", "failed"):
            return (
                f"the newest unfinished run of {job.env.id} has another name: {command} --resume "
                f"{shlex.quote(str(path))}"
            )
    return ""
