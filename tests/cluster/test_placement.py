"""Where engines and ranks run: the plan, and what Ray makes of it on two raylets with fake GPUs."""

import asyncio
import contextlib
import os
import re
import signal
import time

import pytest
import ray
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agentrl import accelerators
from agentrl.cli import run
from agentrl.cluster.ask_nodes import ask_nodes
from agentrl.cluster.placement import Node, plan_layout, unused_gpus
from agentrl.cluster.ray_actor_calls import await_result
from agentrl.cluster.reservation import Reservation
from agentrl.config import RolloutConfig, TrainConfig
from agentrl.errors import ClusterError, ConfigError, WorkerLost

TOGETHER = ["rank 0, engine 0", "rank 1, engine 1", "rank 2, engine 2", "rank 3, engine 3"]


def nodes_with(*gpus):
    return [Node(address=f"10.0.0.{k}", cpus=8, gpus=g) for k, g in enumerate(gpus, 1)]


TENSORS = {"tensor_parallel": 2}
REPLICAS = {"replicas": 2, "tensor_parallel": 2}
ROWS = {"sequence_parallel": 2}


def plan(gpus, each=1, *, mode="sync", ranks="auto", shared=None, **rollout):
    train = TrainConfig(ranks=ranks, mode=mode, **shared or {})
    return plan_layout(nodes_with(*gpus), RolloutConfig(**rollout), train, each)


def shown(layout):
    """What uses each GPU, node by node."""
    return [list(node.values()) for node in layout.describe().values() if isinstance(node, dict)]


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (plan([4]), [TOGETHER]),
        (plan([2, 2]), [TOGETHER[:2], TOGETHER[2:]]),
        (plan([0, 2]), [TOGETHER[:2]]),
        (plan([1]), [TOGETHER[:1]]),
        (plan([1], mode="async"), [TOGETHER[:1]]),
        (plan([3], actors=2, ranks=2), [[*TOGETHER[:2], "unused"]]),
        (plan([4], actors=2, ranks=2), [["rank 0", "rank 1", "engine 0", "engine 1"]]),
        (plan([4], place="apart"), [["rank 0", "rank 1", "engine 0", "engine 1"]]),
        (plan([4], mode="async"), [["rank 0", "rank 1", "engine 0", "engine 1"]]),
        (plan([5], shared=ROWS), [[*TOGETHER, "unused"]]),
        (
            plan([2, 3], shared=REPLICAS),
            [TOGETHER[:2], [*TOGETHER[2:], "unused"]],
        ),
        (
            plan([8] * 4, 4, actors=4, ranks=16, shared={"tensor_parallel": 8}),
            [
                *([f"rank {k}" for k in range(8 * n, 8 * n + 8)] for n in range(2)),
                *([f"engine {n}"] * 4 + [f"engine {n + 1}"] * 4 for n in (0, 2)),
            ],
        ),
        (plan([4], 2), [["rank 0", "rank 1", "engine 0", "engine 0"]]),
        (plan([1, 3], 2, ranks=2), [["rank 0"], ["rank 1", "engine 0", "engine 0"]]),
        (plan([4], 2, actors=1), [["rank 0", "rank 1", "engine 0", "engine 0"]]),
    ],
)
def test_each_gpu_has_its_engine_and_rank(layout, expected):
    assert shown(layout) == expected


@pytest.mark.parametrize(
    ("gpus", "each", "settings", "said"),
    [
        ([12], 1, {"ranks": 5}, "7 of 12 GPUs .*actors=12 train.ranks=12 .*together would use 12"),
        ([12], 4, {"ranks": 2, "actors": 2}, "2 of 12 .*actors=2 .*ranks=4 .*apart would use 12"),
        ([12], 5, {"actors": 2}, None),
        ([4, 4], 3, {"actors": 1, "ranks": 4}, "1 of 8 .*actors=1 train.ranks=5 .* would use 8"),
        ([5], 1, {"shared": ROWS}, "1 of 5 .*actors=3 train.ranks=2 .*apart would use 5"),
        ([3, 3], 1, {"shared": TENSORS, "ranks": 2, "actors": 1}, "3 of 6 .* would use 6"),
        ([0], 1, {}, None),
    ],
)
def test_gpus_that_a_layout_leaves_unused_are_reported(gpus, each, settings, said):
    own = dict(settings)
    train = TrainConfig(ranks=own.pop("ranks", "auto"), **own.pop("shared", {}))
    rollout = RolloutConfig(**own)
    layout = plan_layout(nodes_with(*gpus), rollout, train, each)
    found = unused_gpus(layout, rollout, train, each)
    assert re.match(said, found) if said else found is None


def test_engines_on_several_gpus_leave_none_unused_where_they_need_not():
    assert [plan([12], each).num_unused_gpus for each in (4, 5, 7)] == [0, 0, 0]
    rollout = RolloutConfig(actors=5)
    found = unused_gpus(plan_layout(nodes_with(12), rollout, None, 2), rollout, None, 2)
    assert found == "2 of 12 GPUs are unused; rollout.actors=6 would use 12"


@pytest.mark.parametrize(
    ("gpus", "settings", "said"),
    [
        ([1], {"place": "apart"}, r"needs 2 GPUs \(1 x 1 for .* \+ 1 for .*ranks=1.* has 1\."),
        ([2, 2], {"each": 4, "ranks": 1}, r"needs 5 GPUs \(1 x 4 .*has 4 \(2 on 10\.0\.0\.1, 2 on"),
        ([2, 2], {"each": 3, "ranks": 1}, r"needs 4 GPUs.*the 3 GPUs of an engine must be on one"),
        ([4], {"actors": 2, "ranks": 4}, r"without sharing they need 6 GPUs, but the cluster"),
        ([2], {"actors": 3, "ranks": 3}, r"each rank needs a GPU, but the cluster has 2"),
        ([4], {"each": 2, "place": "together"}, r"an engine on 2 GPUs cannot share them"),
        ([3], {"actors": 3, "shared": ROWS}, r"must divide train\.ranks=3"),
        ([1], {"shared": ROWS}, r"each rank needs a GPU, but the cluster has 1"),
        ([3, 3], {"shared": TENSORS}, r"ranks 2 to 3 share layers and must be on one"),
        ([6], {"actors": 6, "shared": REPLICAS}, r"must be a multiple of 4"),
        ([0], {"place": "together"}, r"place=together: has no effect without .*; remove it"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_the_arithmetic(gpus, settings, said):
    with pytest.raises(ConfigError, match=said):
        plan(gpus, **settings)


def test_without_gpus_nodes_share_the_work_evenly():
    layout = plan([0, 0], ranks=2)
    assert layout.describe() == {"10.0.0.1": "rank 0, engine 0", "10.0.0.2": "rank 1, engine 1"}
    rollout, train = layout.applied_to(RolloutConfig(), TrainConfig())
    assert (rollout.actors, train.ranks) == (2, 2)


def test_evaluation_uses_every_gpu_for_engines():
    layout = plan_layout(nodes_with(2, 3), RolloutConfig(), None, 2)
    assert shown(layout) == [["engine 0", "engine 0"], ["unused", "engine 1", "engine 1"]]
    served = plan_layout(nodes_with(2, 3), RolloutConfig(), None, 0)
    assert [slot.gpus for slot in served.engines] == [()]


counts = st.one_of(st.just("auto"), st.integers(1, 9))


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.integers(1, 3),
    counts,
    counts,
    st.sampled_from(["auto", "together", "apart"]),
)
def test_no_two_of_a_kind_share_a_gpu(gpus, each, actors, ranks, place):
    with contextlib.suppress(ConfigError):
        layout = plan(gpus, each, actors=actors, ranks=ranks, place=place)
        assert actors in ("auto", len(layout.engines))
        assert ranks in ("auto", len(layout.ranks))
        assert layout.together or layout.apart
        for slots, size in ((layout.engines, each), (layout.ranks, 1)):
            used = [(slot.node.address, gpu) for slot in slots for gpu in slot.gpus]
            assert len(used) == len({*used}) == (size * len(slots) if sum(gpus) else 0)
            assert all(gpu < slot.node.gpus for slot in slots for gpu in slot.gpus)


@pytest.fixture(scope="module")
def gpus():
    return 4


class Where:
    def look(self):
        return ray.get_runtime_context().get_node_id(), ray.get_gpu_ids()


def started(layout):
    """Where the actors of a layout find themselves: those of engines, and those of ranks."""
    reservation = Reservation(layout, 20.0)
    actor = ray.remote(Where)
    slots = [*layout.engines, *layout.ranks]
    actors = [actor.options(**reservation.options(slot)).remote() for slot in slots]
    found = ray.get([one.look.remote() for one in actors], timeout=60)
    reservation.release()
    return found[: len(layout.engines)], found[len(layout.engines) :]


@pytest.mark.slow
def test_ray_gives_each_rank_and_its_engine_the_same_gpu(nodes):
    assert [node.gpus for node in nodes] == [4, 4]
    engines, ranks = started(plan_layout(nodes, RolloutConfig(actors=6), TrainConfig()))
    assert engines == ranks
    assert [node for node, _ in ranks] == [nodes[0].id] * 4 + [nodes[1].id] * 2
    assert len({(node, *gpus) for node, gpus in ranks}) == 6


@pytest.mark.slow
def test_ray_gives_an_engine_all_its_gpus_on_one_node(nodes):
    rollout, train = RolloutConfig(actors=2), TrainConfig(ranks=4)
    engines, ranks = started(plan_layout(nodes, rollout, train, 2))
    assert [node for node, _ in ranks] == [nodes[0].id] * 4
    assert [node for node, _ in engines] == [nodes[1].id] * 2
    assert sorted(gpu for _, gpus in engines for gpu in gpus) == [0, 1, 2, 3]


@pytest.mark.slow
def test_gpus_of_another_job_are_waited_for_and_reported(nodes):
    everything = plan_layout(nodes, RolloutConfig(place="apart"), TrainConfig())
    other = Reservation(everything, 20.0)
    with pytest.raises(
        ClusterError, match=r"did not give this job 8 GPUs within 1 s, because other"
    ):
        Reservation(everything, 1.0)
    other.release()
    Reservation(everything, 20.0).release()


@pytest.mark.slow
def test_a_dry_run_asks_every_node_for_the_size_of_its_gpus(nodes, capsys):
    together = ["rollout.launcher=ray", "rollout.place=together"]
    assert run(["train", "frozen_lake", *together, "--dry-run"]) == 0
    planned = yaml.safe_load(capsys.readouterr().out)
    assert "rank 7, engine 7" in str(planned["placement"])
    assert planned["memory"]["size of a GPU"].startswith("unknown")
    assert planned["memory"]["GPU of a rank, at the peak of an update (GB)"]["total"] > 2
    answers = ask_nodes(nodes, accelerators.of_machine, 60.0)
    assert [answer.result.cards for answer in answers] == [(), ()]


@pytest.mark.slow
@pytest.mark.adb
def test_each_node_is_reported_and_one_that_hangs_is_a_line(
    cluster, nodes, tmp_path, monkeypatch, capsys, adb_server
):
    monkeypatch.chdir(tmp_path)
    assert run(["cluster"]) == 1
    first, second = capsys.readouterr().out.split(f"-{nodes[1].id[:8]}\n")
    for said in (first, second):
        assert "ok       versions            Python 3." in said
        assert "none usable by torch; driver: none" in said
        assert "Ray expects 4 GPUs" in said
        assert "start Ray with --num-gpus=0" in said
    assert f"ok       runs folder         {tmp_path} is shared with the driver" in second
    assert "ok       clock               " in second
    assert "0 of 2 nodes can be used for jobs." in second
    assert not list(tmp_path.iterdir())
    (hangs,) = cluster.worker_nodes
    raylet = hangs.all_processes["raylet"][0].process.pid
    os.kill(raylet, signal.SIGSTOP)
    try:
        assert run(["cluster", "--deadline", "40"]) == 1
    finally:
        os.kill(raylet, signal.SIGCONT)
    first, second = capsys.readouterr().out.split(f"-{nodes[1].id[:8]}\n")
    assert "Ray expects 4 GPUs" in first
    assert second.split()[:7] == ["wrong", "node", "no", "answer", "within", "40", "s"]


@pytest.mark.slow
def test_an_engine_whose_node_died_gets_gpus_and_files_on_the_one_that_returns(
    cluster, nodes, tmp_path
):
    rollout, train = RolloutConfig(actors=2), TrainConfig(ranks=4)
    reservation = Reservation(plan_layout(nodes, rollout, train, 2), 60.0)
    file = tmp_path / "weights"
    file.write_text("1")
    node = nodes[1]
    assert reservation.share(file).on(node) == file
    (dies,) = cluster.worker_nodes
    left = ray.remote(Where).options(**reservation.options(reservation.layout.engines[1])).remote()
    ray.get(left.look.remote(), timeout=60)
    cluster.remove_node(dies, allow_graceful=False)
    until(lambda: reservation.find_again(node) is None)
    with pytest.raises(WorkerLost, match=r"^engine 1 died: its node stopped, or lost[a-z ]*$"):
        asyncio.run(await_result(left.look.remote(), "engine 1", 60.0))
    with pytest.raises(WorkerLost, match="died before it received weights"):
        reservation.share(file).on(node)
    cluster.add_node(num_gpus=4, num_cpus=1)
    until(lambda: reservation.find_again(node) is not None)
    returned = reservation.find_again(node)
    assert returned.id != node.id
    reservation.readmit(node, returned)
    slot = reservation.layout.engines[1]
    assert reservation.share(file).on(slot.node) == file
    actor = ray.remote(Where).options(**reservation.options(slot)).remote()
    found, gpus = ray.get(actor.look.remote(), timeout=60)
    assert found == returned.id
    assert len(gpus) == 2
    reservation.release()


def until(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.2)
