"""How weights go to engines, on which GPUs, and what cannot be asked for."""

import asyncio
import pickle
from base64 import b64decode

import pytest

from agentrl.cluster import ray_cluster
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.rollout.rollout_group import RayLink
from agentrl.weight_sync import transports
from agentrl.weight_sync.engine_link import Link, LocalLink


def job(transfer="auto", launcher="ray", actors=1, ranks=1, **more):
    config = Config()
    config.train.transfer, config.train.ranks = transfer, ranks
    config.rollout.launcher, config.rollout.actors = launcher, actors
    config.rollout.engine = more.pop("engine", "vllm")
    config.rollout.sleep = more.pop("sleep", None)
    config.train.mode = more.pop("mode", "sync")
    config.rollout.engine_kwargs = more.pop("kwargs", {})
    config.model.lora.serve, config.model.lora.rank = (
        more.pop("serve", "merged"),
        more.pop("rank", 0),
    )
    assert not more
    return config


@pytest.fixture
def with_gpus(monkeypatch):
    """As many as a joined cluster would have: none are here."""
    return lambda count: monkeypatch.setattr(transports, "gpus_of", lambda config: count)


@pytest.mark.parametrize(
    ("gpus", "config", "kind", "sleeps"),
    [
        (0, job(), "file", False),
        (1, job(), "ipc", True),
        (1, job(launcher="local"), "ipc", True),
        (4, job(launcher="local"), "ipc", True),
        (2, job(), "nccl", False),
        (4, job(actors=2, ranks=2), "nccl", False),
        (2, job(actors=2, ranks=2), "file", False),
        (2, job(actors=2, ranks=2, sleep=True), "file", True),
        (1, job(mode="async"), "ipc", False),
        (1, job(sleep=False), "ipc", False),
        (1, job(engine="hf"), "file", False),
        (1, job("file"), "file", False),
        (0, job("shared"), "shared", False),
        (1, job(rank=4, serve="adapter"), "file", False),
        (4, job(kwargs={"tensor_parallel_size": 2}), "file", False),
    ],
)
def test_way_of_weights_follows_from_who_shares_a_gpu(with_gpus, gpus, config, kind, sleeps):
    with_gpus(gpus)
    transports.check(config)
    assert transports.chosen(config) == kind
    assert transports.sleeps(config) is sleeps


def test_unless_another_way_is_asked_for_weights_go_as_a_file(with_gpus):
    with_gpus(1)
    assert transports.chosen(Config()) == "file"
    assert not transports.sleeps(Config())


@pytest.mark.parametrize(
    ("gpus", "config", "words"),
    [
        (0, job("ipc"), "train.transfer=ipc needs a GPU"),
        (0, job("nccl"), "train.transfer=nccl needs a GPU"),
        (1, job("nccl"), "1 engines, 1 ranks, 1 GPUs.*use train.transfer=ipc"),
        (8, job("nccl", launcher="local"), "use train.transfer=ipc"),
        (2, job("ipc"), "different GPUs.*use train.transfer=nccl"),
        (1, job("ipc", kwargs={"tensor_parallel_size": 2}), "on several GPUs"),
        (1, job("ipc", engine="hf"), "is vLLM's; rollout.engine=hf takes train.transfer=file"),
        (0, job("shared", engine="hf"), "is vLLM's"),
        (0, job(sleep=True), "vLLM on a GPU can sleep"),
        (1, job(sleep=True, engine="hf"), "vLLM on a GPU can sleep"),
        (1, job(sleep=True, mode="async"), "plays while it learns"),
        (2, job(sleep=True), "neither needs the other's room"),
        (0, job(serve="adapter"), "model.lora.rank is 0"),
        (0, job(serve="adapter", rank=4, engine="hf"), "rollout.engine=hf answers with whole"),
        (0, job("shared", serve="adapter", rank=4), "sends files"),
        (0, job(serve="adapter", rank=513), "512 columns at most"),
    ],
)
def test_what_cannot_be_is_told_before_any_work(with_gpus, gpus, config, words):
    with_gpus(gpus)
    with pytest.raises(ConfigError, match=words):
        transports.check(config)


def test_without_a_cluster_and_a_gpu_there_is_none_and_a_cluster_is_not_judged(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert ray_cluster.joined_gpus() is None
    with pytest.raises(ConfigError, match="needs a GPU"):
        transports.check(job("nccl"))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    transports.check(job("nccl"))


def test_who_evaluates_needs_nothing_that_a_learner_would(with_gpus):
    with_gpus(0)
    for config in (job("nccl", sleep=True), job(serve="adapter", rank=4, engine="hf")):
        alone = transports.without_learner(config)
        transports.check(alone)
        assert transports.chosen(alone) == "file"
        assert not transports.sleeps(alone)
        assert alone.model.lora.rank == config.model.lora.rank


class Told(Link):
    """Keeps what each engine would be told."""

    def __init__(self, engines, workers_each):
        super().__init__(engines, workers_each)
        self.calls = []

    def _call(self, method, arguments):
        self.calls.append((method, arguments))


def test_engines_of_several_workers_meet_the_learner_one_behind_the_other():
    link = Told(3, 2)
    assert link.workers == 6
    link.init_weight_transfer_engine({"rank_offset": 1, "world_size": 7})
    ((_, arguments),) = link.calls
    assert [info["rank_offset"] for (info,) in arguments] == [1, 3, 5]
    assert all(info["world_size"] == 7 for (info,) in arguments)


def test_handles_of_memory_travel_as_vllm_takes_them():
    link, handles = Told(1, 1), {"GPU-1": (0, b"handle")}
    link.update_weights({"names": ["a"], "ipc_handles": handles})
    ((_, [(told,)]),) = link.calls
    assert told.keys() == {"names", "ipc_handles_pickled"}
    assert pickle.loads(b64decode(told["ipc_handles_pickled"])) == handles


async def test_local_engine_that_does_not_answer_is_given_up_at_the_deadline():
    async def call(method, *arguments):
        await asyncio.Event().wait()

    link = LocalLink(call, 1, deadline_s=0.1)
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(link.start_weight_update)


async def test_local_engine_is_called_on_its_own_loop_and_its_failure_is_raised():
    seen = []

    async def call(method, *arguments):
        seen.append((method, arguments, asyncio.get_running_loop()))
        raise ValueError("refused")

    link = LocalLink(call, 1, deadline_s=10)
    with pytest.raises(ValueError, match="refused"):
        await asyncio.to_thread(link.update_weights, {"path": "x"})
    assert seen == [("update_weights", ({"path": "x"},), asyncio.get_running_loop())]


def test_link_to_actors_can_be_sent_to_the_learner():
    link = pickle.loads(pickle.dumps(RayLink([], 1, 5.0)))
    assert link.workers == 0
