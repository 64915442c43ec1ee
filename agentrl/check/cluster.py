"""Checks of a cluster's nodes, from their reports and the driver's (`agentrl cluster`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentrl.accelerators import MachineAccelerators
from agentrl.check.finding import Finding, note, ok, wrong
from agentrl.cluster import node_report
from agentrl.cluster.ask_nodes import NodeReply
from agentrl.cluster.machine_resources import Space
from agentrl.cluster.node_report import ENLARGE_SHM, Clock, NodeReport, ReportRequest
from agentrl.cluster.placement import Node
from agentrl.devices.adb import AdbServer
from agentrl.errors import ConfigError, DeviceError
from agentrl.text.formatting import pluralize

_GIB = 1 << 30
_ADB_SERVER_S = 5.0
_MIN_SHM = 1 * _GIB
_MIN_DISK = 5 * _GIB
_MAX_CLOCK_OFFSET_S = 1.0


@dataclass(slots=True, kw_only=True, frozen=True)
class NodeAnswer:
    """A node's report, and the state of its adb server."""

    report: NodeReport
    adb: Finding


def examine(question: ReportRequest) -> NodeAnswer:
    """Report on the current node."""
    return NodeAnswer(report=node_report.examine(question), adb=_adb())


def _adb() -> Finding:
    try:
        server = AdbServer.from_environment()
        if not server.is_running(_ADB_SERVER_S):
            return ok("adb", f"no server on port {server.port} yet; a job will start it")
        states = list(server.devices(_ADB_SERVER_S).values())
    except (ConfigError, DeviceError) as error:
        fix = "stop the program on that port, or set ANDROID_ADB_SERVER_PORT to a different one"
        return wrong("adb", str(error), fix)
    ready = states.count("device")
    return ok("adb", f"port {server.port}, {pluralize(len(states), 'phone')}, {ready} ready")


def reply_findings(
    reply: NodeReply[NodeAnswer], driver: NodeReply[NodeAnswer], question: ReportRequest
) -> Iterator[Finding]:
    """Yield the findings about a node from its reply and the driver's to `examine`."""
    if reply.result is None:
        fix = "check that its raylet runs and that agentrl is installed there (ray status)"
        yield wrong("node", reply.error, fix)
        return
    report = reply.result.report
    # If the driver sent no report, that has its own finding, so compare the node with itself.
    first = report if driver.result is None else driver.result.report
    yield from findings(reply.node, report, first, clock=reply.clock, question=question)
    yield reply.result.adb


def findings(
    node: Node,
    report: NodeReport,
    driver: NodeReport,
    *,
    clock: Clock | None = None,
    question: ReportRequest,
) -> Iterator[Finding]:
    """Yield the findings about a node's resources and problems.

    Args:
        node: the node in Ray.
        report: the node's report.
        driver: report of the machine that starts jobs; the node's versions must match.
        clock: offset of the node's clock from the driver's; None for the driver itself.
        question: the request that the node answered.
    """
    yield _compare_versions(report.versions, driver.versions)
    yield from _compare_accelerators(node, report.accelerators, driver.accelerators)
    yield ok("cores and memory", f"{pluralize(report.cores, 'core')}, {report.memory}")
    size = driver.model_bytes or report.model_bytes
    if report.shm is not None:
        yield _check_shm(report.shm, size)
    yield _check_disk(report)
    if question.model is not None:
        yield _check_model(question.model, report.model_bytes, driver.model_bytes)
    if clock is not None and question.nonce is not None:
        yield _check_runs(report, str(Path(question.nonce[0]).parent))
    if clock is not None:
        yield _check_clock(clock)


def _compare_versions(here: Mapping[str, str], driver: Mapping[str, str]) -> Finding:
    names = {**driver, **here}
    differs = [
        f"{name} {here.get(name, 'not installed')} (driver: {driver.get(name, 'not installed')})"
        for name in names
        if here.get(name) != driver.get(name)
    ]
    if differs:
        return wrong("versions", ", ".join(differs), "install the driver's versions on this node")
    return ok("versions", ", ".join(f"{name} {version}" for name, version in here.items()))


def _compare_accelerators(
    node: Node, found: MachineAccelerators | str, driver: MachineAccelerators | str
) -> Iterator[Finding]:
    if isinstance(found, str):
        yield wrong("accelerators", found, "run agentrl doctor on this node")
        return
    cards, toolkit = found.cards, found.toolkit or "the CPU"
    detail = f"{_listed(cards)}; driver: {found.driver or 'none'}; torch is built for {toolkit}"
    if node.gpus > len(cards):
        yield wrong(
            "accelerators",
            f"{detail}; Ray expects {pluralize(node.gpus, node.resource)}",
            "install a matching driver and build of torch, or start Ray with "
            f"--num-gpus={len(cards)}",
        )
    elif found.driver and not cards and found.toolkit is None:
        yield wrong("accelerators", detail, "install a build of torch for this driver's GPUs")
    # A machine outside Ray has no id and no GPUs to reserve.
    elif node.id and node.gpus < len(cards):
        yield note(
            "accelerators",
            f"{detail}; Ray uses {node.gpus} of them",
            "to use all of them, start Ray without --num-gpus and with CUDA_VISIBLE_DEVICES unset",
        )
    else:
        yield ok("accelerators", detail)
    if isinstance(driver, MachineAccelerators) and cards and driver.cards:
        if found.driver != driver.driver:
            yield note("GPU driver", f"{found.driver}; the driver's node has {driver.driver}", "")
        if {*cards} != {*driver.cards}:
            yield note("GPU models", f"the driver's node has others: {_listed(driver.cards)}", "")


def _listed(cards: tuple[tuple[str, int | None], ...]) -> str:
    def described(card: tuple[str, int | None]) -> str:
        name, memory = card
        return f"{name} ({memory / _GIB:.1f} GiB)" if memory else name

    kinds = dict.fromkeys(cards)
    return ", ".join(f"{cards.count(c)} x {described(c)}" for c in kinds) or "none usable by torch"


def _check_shm(shm: Space, model_bytes: int | None) -> Finding:
    if model_bytes is not None and shm.free < model_bytes:
        detail = f"{shm}; the model's weights take {model_bytes / _GIB:.1f} GiB"
        return wrong("/dev/shm", detail, ENLARGE_SHM)
    if shm.free < _MIN_SHM:
        detail = f"{shm}, for Ray's objects and published weights"
        return note("/dev/shm", detail, ENLARGE_SHM)
    return ok("/dev/shm", str(shm))


def _check_disk(report: NodeReport) -> Finding:
    detail = f"{report.temporary} in {report.temporary_folder}"
    if report.temporary.free < _MIN_DISK:
        return note("temporary files", detail, "free up space, or set TMPDIR on this node")
    return ok("temporary files", detail)


def _check_model(model: str, here: int | None, driver: int | None) -> Finding:
    if here is None and Path(model).is_absolute():
        fix = "to start faster, copy it to the same path on this node, or mount it there"
        return note("model", f"{model} has no weights here, so jobs will copy them", fix)
    if here is None:
        fix = f"run on this node: hf download {model}"
        return note("model", f"{model} is not in this node's cache, so it will be downloaded", fix)
    if driver is not None and here != driver:
        detail = f"{model} has {here} bytes of weights here, but {driver} on the driver's node"
        return wrong("model", detail, "copy the weights from the driver's node")
    return ok("model", f"{model}, {here / _GIB:.2f} GiB of weights")


def _check_runs(report: NodeReport, folder: str) -> Finding:
    if report.sees_runs:
        return ok("runs folder", f"{folder} is shared with the driver")
    detail = f"{folder} is not shared with the driver, so episodes and checkpoints are sent to it"
    return note("runs folder", detail, "mount the driver's folder here to avoid that traffic")


def _check_clock(clock: Clock) -> Finding:
    detail = f"{clock.offset_s:+.3f} s from the driver's, +/- {clock.bound_s:.3f} s"
    # The offset is known only to within half a round trip, so compare just the excess.
    if abs(clock.offset_s) - clock.bound_s > _MAX_CLOCK_OFFSET_S:
        return wrong("clock", detail, "synchronize this node's clock (chrony, systemd-timesyncd)")
    return ok("clock", detail)
