"""`agentrl cluster`: the resources and problems of a cluster's nodes."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from agentrl.cli.terminal_output import print_findings, suggest
from agentrl.cluster import ray_cluster
from agentrl.cluster.ask_nodes import ask_nodes
from agentrl.cluster.node_discovery import find_nodes
from agentrl.cluster.node_report import ReportRequest
from agentrl.errors import ConfigError
from agentrl.text.formatting import pluralize

if TYPE_CHECKING:
    from agentrl.config import Config

_OF_DEADLINE = 0.8
"""Fraction of the deadline after which a node replies without waiting for its GPU drivers."""


def cluster(
    model: Annotated[
        str | None,
        typer.Option(
            help="Also check whether the nodes have this model and enough shared memory for its "
            "weights. A job's configuration, a model folder, or a Hugging Face id."
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option(help="Seconds to wait for the nodes to reply.", min=1)
    ] = 120.0,
) -> None:
    """Check whether the nodes of the Ray cluster at RAY_ADDRESS, or this machine, can run jobs.

    Prints each node's versions, accelerators, memory, disk, adb, model, runs folder and clock,
    and how to fix any problem. Exits with 1 if a node has a problem.

    Example: agentrl cluster --model number_game_3b
    """
    from agentrl.check import cluster as checks

    config, path = _model(model)
    nodes = find_nodes("ray")
    try:
        with _nonce(Path(config.run.dir)) as nonce:
            question = ReportRequest(model=path, nonce=nonce, deadline_s=_OF_DEADLINE * deadline)
            answers = ask_nodes(nodes, partial(checks.examine, question), deadline)
    finally:
        ray_cluster.leave_cluster()
    console = Console(emoji=False)
    unusable = 0
    for answer in answers:
        here = " (this machine)" if answer.node is nodes[0] and answer.node.id else ""
        console.print(Text(f"{answer.node.name}{here}", style="bold"))
        findings = checks.reply_findings(answer, answers[0], question)
        found = print_findings(findings, as_table=True, indent="  ")
        unusable += any(one.state == "wrong" for one in found)
    typer.echo(f"{len(nodes) - unusable} of {pluralize(len(nodes), 'node')} can be used for jobs.")
    if unusable:
        raise typer.Exit(1)
    is_job = model is not None and path != model and not Path(model).expanduser().is_dir()
    suggest(("train", model if is_job else "number_game", "--dry-run"))


def _model(given: str | None) -> "tuple[Config, str | None]":
    """Return the configuration and the model's path or id (None for a model built on demand).

    Raises:
        ConfigError: `given` is neither a configuration nor a model.
    """
    from agentrl.config import Config, load

    if given is None:
        return Config(), None
    folder = Path(given).expanduser()
    if folder.is_dir():
        return Config(), str(folder.absolute())
    # The job's phones need not be connected to this machine.
    try:
        config = load(given, ["devices.source=virtual:1"])
    except ConfigError:
        if given.count("/") != 1 or Path(given).suffix in (".yaml", ".yml"):
            raise
        return Config(), given
    path = config.model.path
    if path == "tiny":
        return config, None
    return config, str(Path(path).absolute()) if Path(path).is_dir() else path


@contextmanager
def _nonce(runs: Path) -> Iterator[tuple[str, str] | None]:
    """Write a random file to the runs folder, or its nearest existing parent, while in use.

    Yields the path and the content, or None if the folder is read-only.
    """
    # A node that sees the file with this content shares the disk.
    folder = runs.absolute()
    while not folder.is_dir():
        folder = folder.parent
    path, content = folder / f".agentrl-{secrets.token_hex(8)}", secrets.token_hex(16)
    try:
        path.write_text(content)
    except OSError:
        yield None
        return
    try:
        yield str(path), content
    finally:
        with suppress(OSError):
            path.unlink()
