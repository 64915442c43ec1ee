"""The cores and the memory that a container may use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.cluster.machine_resources import Space, cores, host_memory

GIB = 1 << 30


def a_group(folder, names, limit, used, caches):
    folder.mkdir(parents=True)
    prefix = "total_" if "in_bytes" in names[0] else ""
    stat = f"{prefix}inactive_file {caches}\n{prefix}active_file {caches}\n"
    for name, content in zip((*names, "memory.stat"), (limit, used, stat.strip()), strict=True):
        (folder / name).write_text(f"{content}\n")


V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
V2 = ("memory.max", "memory.current")


@pytest.mark.parametrize(
    ("names", "own", "root", "mounted"),
    [
        (V2, "0::/pod/job/rank", "/", "cgroup2 cgroup2 rw"),
        (V2, "0::/pod/job/rank", "/pod", "cgroup2 cgroup2 rw"),  # of a container
        (V2, "0::/../elsewhere", "/", "cgroup2 cgroup2 rw"),  # of a namespace: only its own limit
        (V1, "9:name=systemd:/\n4:memory:/pod/job/rank\n0::/", "/pod", "cgroup cgroup rw,memory"),
        (V1, "4:cpu,memory:/pod/job/rank", "/", "cgroup cgroup rw,cpu,memory"),
    ],
)
def test_a_container_has_the_memory_of_the_group_with_the_least(
    names, own, root, mounted, tmp_path
):
    top = tmp_path / "groups"
    outer = top if root == "/pod" or "elsewhere" in own else top / "pod"
    unlimited = "max" if names is V2 else 2**63 - 4096
    a_group(outer, names, 3 * GIB, 2 * GIB, GIB // 4)
    a_group(outer / "job", names, 2 * GIB, GIB, GIB // 4)
    a_group(outer / "job" / "rank", names, unlimited, GIB, 0)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(own)
    other = f"1 0 0:9 / {tmp_path / 'no'} rw - cgroup cgroup rw,pids"
    line = f"41 31 0:38 {root} {top} rw,relatime shared:5 - {mounted}"
    (tmp_path / "self" / "mountinfo").write_text(f"{other}\n{line}\n")
    expected = Space(total=3 * GIB, free=3 * GIB // 2)
    if "elsewhere" not in own:
        expected = Space(total=2 * GIB, free=3 * GIB // 2)
    assert host_memory(tmp_path) == expected


@pytest.mark.parametrize(
    ("files", "own", "mounted"),
    [
        ({"cpu.max": "150000 100000"}, "0::/pod/job", "cgroup2 cgroup2 rw"),
        (
            {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"},
            "4:cpu,cpuacct:/pod/job",
            "cgroup cgroup rw,cpu,cpuacct",
        ),
    ],
)
def test_a_container_has_the_cores_whose_time_it_may_use(
    files, own, mounted, tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(own)
    line = f"41 31 0:38 / {tmp_path} rw,relatime shared:5 - {mounted}"
    (tmp_path / "self" / "mountinfo").write_text(f"{line}\n")
    (tmp_path / "pod" / "job").mkdir(parents=True)
    assert cores(tmp_path) == 64
    for name, content in files.items():
        (tmp_path / "pod" / name).write_text(f"{content}\n")
        unlimited = {"cpu.max": "max 100000", "cpu.cfs_quota_us": "-1"}.get(name, content)
        (tmp_path / "pod" / "job" / name).write_text(f"{unlimited}\n")
    assert cores(tmp_path) == 2


def test_a_process_in_a_nested_group_of_this_machine_has_its_memory():
    group = Path("/sys/fs/cgroup/memory")  # version 1, to whose root no other process is bound
    if not (group / V1[0]).is_file():
        pytest.skip("control groups of version 1 are not mounted")
    try:
        (group / "agentrl-test" / "inner").mkdir(parents=True)
    except OSError:
        pytest.skip("control groups cannot be made")
    try:
        (group / "agentrl-test" / V1[0]).write_text(str(GIB))
        shows = "from agentrl.cluster.machine_resources import host_memory as m; print(m().total)"
        enters = (
            f"echo $$ > {group}/agentrl-test/inner/cgroup.procs; exec {sys.executable} -c '{shows}'"
        )
        shown = subprocess.run(["bash", "-c", enters], capture_output=True, text=True, check=True)
    finally:
        (group / "agentrl-test" / "inner").rmdir()
        (group / "agentrl-test").rmdir()
    assert int(shown.stdout) == GIB
