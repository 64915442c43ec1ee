"""The choice of the weight transport, and rejected settings."""

import asyncio
import pickle
from base64 import b64decode

import pytest

from agentrl import accelerators
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.open_rollouts import layout_of_job
from agentrl.rollout.workers.rollout_worker_group import RayLink
from agentrl.weight_sync.engine_link import EngineLink, LocalLink
from agentrl.weight_sync.transport_choice import TransportChoice
from agentrl.weight_sync.vllm_transport import VLLMClient


def job(transfer="auto", launcher="ray", actors=1, ranks=1, **more):
    config = Config()
    config.train.weight_transfer, config.train.ranks = transfer, ranks
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


def transport(config):
    rollout, train = layout_of_job(config.rollout, config.train).applied_to(
        config.rollout, config.train
    )
    return TransportChoice(rollout=rollout, train=train, lora=config.model.lora)


@pytest.fixture
def with_gpus(monkeypatch):
    """As many as this machine had: none are here."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return lambda count: monkeypatch.setattr(accelerators, "count", lambda: count)


@pytest.mark.parametrize(
    ("gpus", "config", "kind", "sleeps"),
    [
        (0, job(), "file", False),
        (1, job(), "ipc", True),
        (1, job(launcher="local"), "ipc", True),
        (4, job(launcher="local"), "ipc", True),
        (2, job(), "nccl", False),
        (4, job(actors=2, ranks=2), "nccl", False),
        (2, job(actors=2, ranks=2), "ipc", True),
        (2, job(actors=2, ranks=2, sleep=True), "ipc", True),
        (1, job(mode="async"), "ipc", False),
        (1, job(sleep=False), "ipc", False),
        (1, job(engine="hf"), "file", False),
        (1, job("file"), "file", True),
        (0, job("shared"), "shared", False),
        (1, job(rank=4, serve="adapter"), "file", True),
        (4, job(kwargs={"tensor_parallel_size": 2}), "nccl", False),
    ],
)
def test_the_transport_depends_on_which_gpus_are_shared(with_gpus, gpus, config, kind, sleeps):
    with_gpus(gpus)
    transport(config).check()
    assert transport(config).transport() == kind
    assert transport(config).sleeps() is sleeps
    placed = plan_rollouts(config).placed(layout_of_job(config.rollout, config.train)).settings
    assert (placed.train.weight_transfer, placed.rollout.sleep) == (kind, sleeps)


@pytest.mark.parametrize(
    ("gpus", "config", "words"),
    [
        (0, job("ipc"), "train.weight_transfer=ipc needs a GPU"),
        (0, job("nccl"), "train.weight_transfer=nccl needs a GPU"),
        (1, job("nccl"), "1 engines, 1 ranks, 1 GPUs.*set train.weight_transfer=ipc"),
        (8, job("nccl", launcher="local"), "set train.weight_transfer=ipc"),
        (2, job("ipc"), "different GPUs.*set train.weight_transfer=nccl"),
        (4, job("ipc", kwargs={"tensor_parallel_size": 2}), "set train.weight_transfer=nccl"),
        (
            1,
            job("ipc", engine="hf"),
            "needs rollout.engine=vllm; for hf set train.weight_transfer=file",
        ),
        (0, job("shared", engine="hf"), "needs rollout.engine=vllm"),
        (0, job(sleep=True), "engines such as vllm can sleep, and only on a GPU"),
        (1, job(sleep=True, engine="hf"), "engines such as vllm can sleep, and only on a GPU"),
        (1, job(sleep=True, mode="async"), "engines generate while the learner updates"),
        (2, job(sleep=True), "sleeping frees no memory"),
        (0, job(serve="adapter"), "needs adapters; set model.lora.rank"),
        (0, job(serve="adapter", rank=4, engine="hf"), "rollout.engine=hf supports merged"),
        (0, job("shared", serve="adapter", rank=4), "needs train.weight_transfer=file or auto"),
        (0, job(serve="adapter", rank=513), "up to rank 512"),
    ],
)
def test_impossible_transfers_are_rejected_before_any_work(with_gpus, gpus, config, words):
    with_gpus(gpus)
    with pytest.raises(ConfigError, match=words):
        transport(config).check()


def test_evaluation_does_not_check_settings_of_the_learner(with_gpus):
    with_gpus(0)
    for config in (job("nccl", sleep=True), job(serve="adapter", rank=4, engine="hf")):
        alone = config.without_learner()
        transport(alone).check()
        assert transport(alone).transport() == "file"
        assert not transport(alone).sleeps()
        assert alone.model.lora.rank == config.model.lora.rank


class RecordingLink(EngineLink):
    """Records the messages to each engine."""

    def __init__(self, engines, workers_per_engine):
        super().__init__(engines, workers_per_engine)
        self.sent = []

    def send_each(self, messages):
        self.sent.append(list(messages))


def test_engines_with_several_workers_get_consecutive_ranks():
    link = RecordingLink(3, 2)
    assert link.workers == 6
    VLLMClient(link).init_weight_transfer_engine({"rank_offset": 1, "world_size": 7})
    (messages,) = link.sent
    assert {method for method, _ in messages} == {"init_weight_transfer_engine"}
    assert [info["rank_offset"] for _, (info,) in messages] == [1, 3, 5]
    assert all(info["world_size"] == 7 for _, (info,) in messages)


def test_ipc_handles_are_pickled_as_vllm_expects():
    link, handles = RecordingLink(1, 1), {"GPU-1": (0, b"handle")}
    VLLMClient(link).update_weights({"names": ["a"], "ipc_handles": handles})
    (((_, (update,)),),) = link.sent
    assert update.keys() == {"names", "ipc_handles_pickled"}
    assert pickle.loads(b64decode(update["ipc_handles_pickled"])) == handles


async def test_a_local_engine_that_does_not_answer_times_out():
    async def receive(message):
        await asyncio.Event().wait()

    link = LocalLink(receive, 1, deadline_s=0.1)
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(link.send, "weights")


async def test_a_local_engine_is_called_on_its_own_loop_and_its_error_is_raised():
    seen = []

    async def receive(message):
        seen.append((message, asyncio.get_running_loop()))
        raise ValueError("refused")

    link = LocalLink(receive, 1, deadline_s=10)
    with pytest.raises(ValueError, match="refused"):
        await asyncio.to_thread(link.send, {"path": "x"})
    assert seen == [({"path": "x"}, asyncio.get_running_loop())]


def test_a_link_to_actors_can_be_pickled():
    link = pickle.loads(pickle.dumps(RayLink([], 1, 5.0)))
    assert link.workers == 0
