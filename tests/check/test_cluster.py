"""What is wrong with a node, from reports: nothing here needs Ray."""

import dataclasses
import re

import pytest

from agentrl.accelerators import MachineAccelerators
from agentrl.check import cluster
from agentrl.cluster.machine_resources import Space
from agentrl.cluster.node_report import Clock, NodeReport, ReportRequest
from agentrl.cluster.placement import Node

GIB = 1 << 30
H100 = ("NVIDIA H100 80GB HBM3", 80 * GIB)
MODEL = "/models/Qwen2.5-VL-3B-Instruct"
QUESTION = ReportRequest(model=MODEL, nonce=("/shared/runs/.nonce", "x"))
GOOD = NodeReport(
    versions={"Python": "3.11.7", "torch": "2.13.0", "vllm": "0.32.0"},
    cores=16,
    memory=Space(total=128 * GIB, free=100 * GIB),
    accelerators=MachineAccelerators(
        cards=(H100, H100), toolkit="CUDA 13.0", driver="NVIDIA 580.95.05"
    ),
    shm=Space(total=64 * GIB, free=60 * GIB),
    temporary=Space(total=900 * GIB, free=500 * GIB),
    temporary_folder="/tmp",
    model_bytes=7 * GIB,
    sees_runs=True,
)
SECOND = Node(id="b", address="10.0.0.2", cpus=16, gpus=2)
SYNCHRONOUS = Clock(offset_s=0.01, bound_s=0.02)


def found(clock=SYNCHRONOUS, node=SECOND, **changes):
    """A line for each finding but the good ones, about a node with changes."""
    report = dataclasses.replace(GOOD, **changes)
    findings = cluster.findings(node, report, GOOD, clock=clock, question=QUESTION)
    return [f"{f.state} {f.what}: {f.detail}; {f.fix}" for f in findings if f.state != "ok"]


def cards(**changes):
    return dataclasses.replace(GOOD.accelerators, **changes)


def test_nothing_is_wrong_with_a_node_like_the_drivers():
    assert found() == []
    texts = [f.detail for f in cluster.findings(SECOND, GOOD, GOOD, question=QUESTION)]
    assert "2 x NVIDIA H100 80GB HBM3 (80.0 GiB); driver: NVIDIA 580.95.05" in texts[1]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"versions": {**GOOD.versions, "torch": "2.12.0"}}, r"wrong versions: torch 2\.12.*2\.13"),
        ({"versions": {"Python": "3.11.7", "torch": "2.13.0"}}, "wrong versions: vllm not inst"),
        ({"accelerators": "torch cannot list"}, "wrong accelerators: torch.*agentrl doctor"),
        ({"accelerators": MachineAccelerators()}, "wrong accelerators: none.*expects 2 GPUs"),
        ({"node": Node(id="b", address="b", cpus=1)}, "note accelerators: 2 x .* uses 0 of them"),
        ({"accelerators": cards(driver="NVIDIA 550")}, "note GPU driver: NVIDIA 550; .* 580"),
        ({"accelerators": cards(cards=(("A", 1), H100))}, "note GPU models: .*2 x NVIDIA H100"),
        ({"shm": Space(total=64 << 20, free=64 << 20)}, "wrong /dev/shm: .* weights take 7.0 GiB"),
        ({"temporary": Space(total=GIB, free=GIB)}, "note temporary files: 1.0 of 1.0.*TMPDIR"),
        ({"model_bytes": None}, f"note model: {MODEL} has no weights here"),
        ({"model_bytes": 5}, "wrong model: .* has 5 bytes of weights here"),
        ({"sees_runs": False}, "note runs folder: /shared/runs is not shared with the driver"),
        ({"clock": Clock(offset_s=-7.0, bound_s=0.5)}, r"wrong clock: -7\.000 s from the driver's"),
    ],
)
def test_each_difference_is_reported(changes, line):
    (only,) = found(**changes)
    assert re.match(line, only), only


def test_a_clock_is_wrong_only_beyond_what_the_round_trip_explains():
    clock = Clock.measured(sent=100.0, there=112.0, received=120.0)
    assert clock == Clock(offset_s=2.0, bound_s=10.0)
    assert found(clock=clock) == []


def test_without_gpus_the_weights_need_no_driver():
    nothing = MachineAccelerators()
    report = dataclasses.replace(GOOD, accelerators=nothing)
    node = Node(address="this machine", cpus=2)
    states = {f.state for f in cluster.findings(node, report, report, question=ReportRequest())}
    assert states == {"ok"}
