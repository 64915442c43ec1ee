import asyncio
import pickle
import resource
import threading
import time
from contextlib import contextmanager

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader

from agentrl.cluster.machine_resources import Space
from agentrl.config import CheckpointConfig
from agentrl.errors import ConfigError
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.checkpoints.checkpoint_writer import CheckpointWriter
from agentrl.training.learner.learner import copies_fit
from agentrl.training.learner.parallel import sharded_checkpoint
from tests.training.samples import sample


def writer_of(run, learner, *, asynchronous=True):
    settings = CheckpointConfig(keep=2, asynchronous=asynchronous)
    return CheckpointWriter(run, learner, settings, 60.0)


def everything_in(checkpoint):
    folder = checkpoint_store.learner_state_of(checkpoint)
    tensors = sharded_checkpoint.read(folder, "")
    return {name: t.numpy().tobytes() for name, t in tensors.items()}, (
        folder / "plain.json"
    ).read_text()


@contextmanager
def full_disk():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_training_goes_on_while_the_state_of_the_moment_is_written(
    make_learner, config, model_adapter, tmp_path
):
    learner = make_learner(config)

    async def train():
        learner.update([sample(model_adapter, 0)])
        await writer_of(tmp_path / "sync", learner, asynchronous=False).save(1, {"step": 1})
        background = writer_of(tmp_path / "async", learner)
        await background.save(1, {"step": 1}, best=True)
        learner.update([sample(model_adapter, 1)])
        await background.wait()
        await background.save(2, {"step": 2})
        await background.wait()

    asyncio.run(train())
    ours, first = (checkpoint_store.by_name(tmp_path / how, "1") for how in ("async", "sync"))
    assert everything_in(ours) == everything_in(first)
    assert everything_in(ours)[0] != everything_in(checkpoint_store.latest(tmp_path / "async"))[0]
    assert checkpoint_store.best(tmp_path / "async") == ours
    assert checkpoint_store.load(ours, learner) == {"step": 1}
    assert learner.version == 1


def test_failure_to_write_surfaces_later_and_keeps_the_previous_checkpoint(
    make_learner, config, tmp_path
):
    learner = make_learner(config)

    async def train():
        writer = writer_of(tmp_path, learner)
        await writer.save(1, {"step": 1})
        await writer.wait()
        with full_disk():
            await writer.save(2, {"step": 2})
            await asyncio.wait({writer._writing})
        with pytest.raises(OSError, match="cannot be written"):
            await writer.check()
        assert [folder.name for folder in (tmp_path / "checkpoints").iterdir()] == ["step-00001"]
        await writer.save(2, {"step": 2})
        await writer.wait()

    asyncio.run(train())
    assert checkpoint_store.latest(tmp_path).name == "step-00002"


def test_training_waits_where_a_copy_does_not_fit_into_memory(
    make_learner, config, model_adapter, tmp_path, monkeypatch, caplog
):
    learner = make_learner(config)
    size = sum(t.nbytes for t in learner._models.state_tensors().values())
    for free, fits in ((size, True), (size - 1, False)):
        space = Space(total=free, free=free)
        monkeypatch.setattr("agentrl.training.learner.learner.host_memory", lambda s=space: s)
        learner.begin_save_state(tmp_path / str(fits))
        assert (learner._saving is not None) == fits
        while not learner.is_state_saved():
            time.sleep(0.01)
        learner._saving = None
        sharded_checkpoint.check_files(tmp_path / str(fits))
    assert "GB each) do not fit into CPU memory" in caplog.text


def test_copies_must_fit_into_the_memory_of_each_machine_apart():
    two_machines = [(1, 40, 100), (1, 40, 99), (2, 40, 90), (2, 40, 90)]
    assert copies_fit(two_machines)
    assert not copies_fit([*two_machines, (2, 40, 90)])


class Slow:
    """A learner that has its state on disk when asked to."""

    def __init__(self):
        self.begun, self.done = [], threading.Event()

    def begin_save_state(self, folder):
        folder.mkdir()
        self.begun.append(folder.parent.name)

    def is_state_saved(self):
        return self.done.is_set()


def test_one_checkpoint_is_written_at_a_time_and_counts_at_its_end(tmp_path):
    learner = Slow()

    async def train():
        writer = writer_of(tmp_path, learner)
        await writer.save(1, {"step": 1})
        second = asyncio.create_task(writer.save(2, {"step": 2}))
        await asyncio.sleep(0.2)
        assert (learner.begun, checkpoint_store.latest(tmp_path)) == (["step-00001"], None)
        learner.done.set()
        await second
        await writer.wait()
        assert learner.begun == ["step-00001", "step-00002"]
        # The state is on disk already: only the loop's state and the mark are new.
        await writer.save(2, {"step": 2, "best": 0.5}, best=True)
        assert learner.begun == ["step-00001", "step-00002"]

    asyncio.run(train())
    assert checkpoint_store.best(tmp_path) == checkpoint_store.latest(tmp_path)


def test_checkpoint_without_its_last_file_does_not_count(tmp_path):
    learner = Slow()
    learner.done.set()

    async def save(step):
        writer = writer_of(tmp_path, learner)
        await writer.save(step, {"step": step})
        await writer.wait()

    for step in (1, 2):
        asyncio.run(save(step))
    (tmp_path / "checkpoints" / "step-00002" / "trainer.json").unlink()
    assert checkpoint_store.latest(tmp_path).name == "step-00001"
    asyncio.run(save(2))
    assert checkpoint_store.latest(tmp_path).name == "step-00002"


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_no_pinned_memory_is_left_by_tensors_of_a_gpu(tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    before = torch.cuda.host_memory_stats().get("allocated_bytes.current", 0)
    tensors = {f"weight{number}": torch.ones(1 << 22, device="cuda") for number in range(8)}
    sharded_checkpoint.write(tmp_path / "learner", tensors, {}, main=True)
    kept = torch.cuda.host_memory_stats().get("allocated_bytes.current", 0) - before
    assert kept < tensors["weight0"].nbytes


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_checkpoint_that_claims_more_than_its_files_hold_is_refused(tmp_path) -> None:
    sharded_checkpoint.write(tmp_path, {"policy/w": torch.zeros(4)}, {}, main=True)
    metadata = FileSystemReader(tmp_path).read_metadata()
    metadata.state_dict_metadata["policy/w"].size = torch.Size([10**12])
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    (tmp_path / ".metadata.xxh3").unlink()
    with pytest.raises(ConfigError, match=r"policy/w claims 1,000,000,000,000 elements"):
        sharded_checkpoint.read(tmp_path, "policy/")
