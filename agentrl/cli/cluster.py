"""`agentrl cluster`: what the nodes of a cluster have, and what is wrong with them."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from agentrl.cli.terminal import print_finding, suggest
from agentrl.cluster import node_findings, node_report, ray_cluster
from agentrl.cluster.node_report import NodeReport, ReportRequest
from agentrl.cluster.node_survey import NodeReply, ask_nodes
from agentrl.cluster.placement import Node
from agentrl.cluster.reservation import find_nodes
from agentrl.errors import ConfigError, DeviceError
from agentrl.findings import Finding, ok, wrong
from agentrl.text import pluralize

if TYPE_CHECKING:
    from agentrl.config import Config

_ADB_SERVER_S = 5.0
_OF_DEADLINE = 0.8
"""The share of the deadline after which a node gives up on its drivers and answers nevertheless."""


@dataclass(slots=True, kw_only=True, frozen=True)
class _NodeAnswer:
    """A node's report, and what its adb server says."""

    report: NodeReport
    adb: Finding


def cluster(
    model: Annotated[
        str | None,
        typer.Option(
            help="A job's configuration, or the folder or Hugging Face id of a model: whether the "
            "nodes have it and room for it."
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option(help="Seconds that the nodes have to answer.", min=1)
    ] = 120.0,
) -> None:
    """Check the nodes of the cluster of RAY_ADDRESS, or this machine, for jobs.

    Prints what each node has and how to fix what is wrong: versions, accelerators, memory, disk,
    adb, model, folder of runs and clock. Exits with 1 if something has to be fixed.

    Example: agentrl cluster --model number_game_3b
    """
    config, path = _model(model)
    nodes = find_nodes("ray")
    try:
        with _nonce(Path(config.run.dir)) as nonce:
            question = ReportRequest(model=path, nonce=nonce, deadline_s=_OF_DEADLINE * deadline)
            answers = ask_nodes(nodes, partial(_examine, question), deadline)
    finally:
        ray_cluster.leave_cluster()
    console = Console(emoji=False)
    unusable = 0
    for answer in answers:
        console.print(Text(_title(answer.node, nodes), style="bold"))
        found = list(_findings(answer, answers[0], question))
        for one in found:
            print_finding(console, one, indent="  ")
        unusable += any(one.state == "wrong" for one in found)
    typer.echo(f"{len(nodes) - unusable} of {pluralize(len(nodes), 'node')} can be used for jobs.")
    if unusable:
        raise typer.Exit(1)
    is_job = model is not None and path != model and not Path(model).expanduser().is_dir()
    suggest(("train", model if is_job else "number_game", "--dry-run"))


def _model(given: str | None) -> "tuple[Config, str | None]":
    """The configuration, and the model's path or id; None for one that is built where it is used.

    Raises:
        ConfigError: neither a configuration nor a model.
    """
    from agentrl.config import Config, load

    if given is None:
        return Config(), None
    folder = Path(given).expanduser()
    if folder.is_dir():
        return Config(), str(folder.absolute())
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
    """A file in the folder of runs, or in the nearest one that exists; None if it is read-only."""
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


def _examine(question: ReportRequest) -> _NodeAnswer:
    """Runs on each node."""
    return _NodeAnswer(report=node_report.examine(question), adb=_adb())


def _adb() -> Finding:
    from agentrl.devices.adb import AdbServer

    try:
        server = AdbServer.from_environment()
        if not server.is_running(_ADB_SERVER_S):
            return ok("adb", f"no server on port {server.port} yet: jobs start it")
        states = list(server.devices(_ADB_SERVER_S).values())
    except (ConfigError, DeviceError) as error:
        fix = "stop what listens there, or set ANDROID_ADB_SERVER_PORT to another port"
        return wrong("adb", str(error), fix)
    ready = states.count("device")
    return ok("adb", f"port {server.port}, {pluralize(len(states), 'phone')}, {ready} ready")


def _title(node: Node, nodes: list[Node]) -> str:
    return f"{node.name}, where this command runs" if node is nodes[0] and node.id else node.name


def _findings(
    answer: NodeReply[_NodeAnswer], first: NodeReply[_NodeAnswer], question: ReportRequest
) -> Iterator[Finding]:
    if answer.result is None:
        fix = "check that its raylet runs and that agentrl is installed there (ray status)"
        yield wrong("node", answer.error, fix)
        return
    report = answer.result.report
    driver = report if first.result is None else first.result.report
    yield from node_findings.findings(
        answer.node, report, driver, clock=answer.clock, question=question
    )
    yield answer.result.adb
