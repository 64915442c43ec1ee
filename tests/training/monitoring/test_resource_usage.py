"""How busy the machine is."""

import sys
import time

import psutil
import pytest

from agentrl.training.monitoring.resource_usage import ResourceUsage


def test_busy_cores_and_memory_are_those_of_the_system():
    usage = ResourceUsage()
    ends = time.monotonic() + 0.3
    while time.monotonic() < ends:
        pass
    found = usage.measure()
    assert 0.8 / psutil.cpu_count() <= found["resources/cpu"] <= 1
    with open("/proc/meminfo") as file:
        kib = {line.split(":")[0]: int(line.split()[1]) for line in file}
    used = (kib["MemTotal"] - kib["MemAvailable"]) / (1 << 20)
    assert found["resources/memory_gb"] == pytest.approx(used, abs=1)


def test_gpus_are_averaged_and_their_memory_summed():
    printed = "print('50, 1024'); print('100, 2048')"
    found = ResourceUsage((sys.executable, "-c", printed)).measure()
    assert found["resources/gpu"] == 0.75
    assert found["resources/gpu_memory_gb"] == 3


@pytest.mark.parametrize("printed", ["", "print('[N/A], [N/A]')", "exit(9)", "print('1')"])
def test_a_driver_that_does_not_answer_is_asked_once(printed, tmp_path):
    asked = tmp_path / "asked"
    command = f"open({str(asked)!r}, 'a').write('x'); {printed or 'pass'}"
    usage = ResourceUsage((sys.executable, "-c", command))
    for _ in range(2):
        assert "resources/gpu" not in usage.measure()
    assert asked.read_text() == "x"
