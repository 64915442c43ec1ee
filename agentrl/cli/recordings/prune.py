"""`agentrl prune`: remove old training episodes to free disk space."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from agentrl.cli.command_completion import complete_run
from agentrl.cli.terminal_output import suggest
from agentrl.errors import ConfigError
from agentrl.text.formatting import pluralize

if TYPE_CHECKING:
    from agentrl.replay import Run
    from agentrl.replay.disk_usage import KeptEpisode


def prune(
    run: Annotated[
        str,
        typer.Argument(
            help="A run folder; a job may be running in it.", autocompletion=complete_run
        ),
    ],
    keep_gb: Annotated[
        float, typer.Option(help="Size limit of its episodes and frames, in GB (10^9 bytes).")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be removed.")
    ] = False,
) -> None:
    """Remove a run's oldest training episodes, and the frames that no other episode uses.

    Scores, evaluations and demonstrations are kept.

    Example: agentrl prune runs/NAME --keep-gb 20
    """
    from rich.filesize import decimal

    from agentrl import replay
    from agentrl.replay.pruning import GB, SETTLED_S, Pruner, size_limit_warning

    if not (math.isfinite(keep_gb) and keep_gb >= 0):
        raise ConfigError(f"--keep-gb {keep_gb}: must be a finite number that is not negative")
    opened = replay.open(run)
    # Reject a run in another format before removing anything.
    opened.episodes()
    pruned = Pruner(opened.path).prune(keep_gb * GB, _grace_s(opened), dry_run=dry_run)
    for step, count, size in _by_step(pruned.episodes):
        typer.echo(f"training step {step}: {count} episodes, {decimal(size)} without frames")
    verb = "would remove" if dry_run else "removed"
    typer.echo(
        f"{verb} {len(pruned.episodes)} episodes and {pruned.frames} frames: "
        f"{decimal(pruned.bytes)}"
    )
    if pruned.recent:
        typer.echo(
            f"still over the limit: {pluralize(pruned.recent, 'training episode')} recorded or "
            f"copied within the last {SETTLED_S:g} s cannot be removed yet, because a resumed job "
            "may be replacing them; prune again later"
        )
    elif not pruned.episodes and pruned.kept_bytes <= keep_gb * GB:
        typer.echo("nothing to remove, since the run's episodes and frames are within the limit")
    if pruned.waiting:
        typer.echo(
            f"{pruned.waiting} more frames ({decimal(pruned.waiting_bytes)}) are too recent to "
            "remove, because a running episode may use them; prune again later"
        )
    typer.echo(f"kept: {pruned.kept} episodes, {decimal(pruned.kept_bytes)} with their frames")
    if pruned.is_short:
        typer.echo(size_limit_warning(pruned))
    suggest(("prune", run, "--keep-gb", f"{keep_gb:g}") if dry_run else ("episodes", run))


def _by_step(episodes: "Sequence[KeptEpisode]") -> list[tuple[int, int, int]]:
    """Return (step, number of episodes, total bytes) for each step."""
    counts, sizes = Counter[int](), Counter[int]()
    for held in episodes:
        counts[held.step] += 1
        sizes[held.step] += held.bytes
    return [(step, counts[step], sizes[step]) for step in sorted(counts)]


def _grace_s(run: "Run") -> float:
    """Return the grace period for recent files, from the deadlines in the run's configuration."""
    from agentrl import config as configuration
    from agentrl.replay.pruning import grace_s

    file = run.path / "config.yaml"
    config = configuration.load(file) if file.is_file() else configuration.Config()
    return grace_s(config.rollout)
