"""A run recorded elsewhere, and what arrives in its folder."""

import resource
import threading

import numpy as np
import pytest

from agentrl import replay
from agentrl.replay.live_phone_states import LivePhones
from agentrl.replay.recorder import Recorder
from agentrl.replay.remote_recording import Parcel, Spool, SpoolReceiver
from tests.replay.episodes import scored


def screens(count, first=0):
    random = np.random.default_rng(first)
    return [random.integers(0, 255, (96, 64, 3), dtype=np.uint8) for _ in range(count)]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def test_a_recorded_run_arrives_whole_and_leaves_the_spool(run):
    receiver = SpoolReceiver(run)
    spool = Spool(lambda parcel: receiver.apply("a", parcel))
    images = screens(3)
    with Recorder(spool.folder, writer="rollout1") as recorder:
        ids = [recorder.frame(image) for image in images]
        for number in range(3):
            recorder.episode(scored(f"e{number}"), split="train", step=0)
        recorder.flush()
        spool.flush()
        assert not list(spool.folder.glob("episodes/*.gz"))
        ids += [recorder.frame(images[0]), *map(recorder.frame, screens(1, first=9))]
        recorder.episode(scored("e3"), split="train", step=1)
    (spool.folder / "logs").mkdir()
    (spool.folder / "logs" / "rollout1.log").write_text("half a line")
    spool.close(10)
    receiver.close()
    assert not spool.folder.exists()
    opened = replay.open(run)
    assert [one.id for one in opened.episodes()] == ["e0", "e1", "e2", "e3"]
    for id, image in zip(ids, [*images, images[0], *screens(1, first=9)], strict=True):
        assert np.array_equal(opened.frame(id), image)
    assert (run / "logs" / "rollout1.log").read_text() == "half a line"


def test_a_second_spool_continues_the_files_of_the_first(run):
    """As after a restart: the writer's name is the same, and its last line may be torn."""
    for number in range(2):
        receiver = SpoolReceiver(run)
        spool = Spool(lambda parcel, to=receiver, n=number: to.apply(str(n), parcel))
        with Recorder(spool.folder, writer="rollout1") as recorder:
            recorder.frame(screens(1)[0])
            recorder.episode(scored(f"e{number}"), split="train", step=number)
        spool.close(10)
        receiver.close()
        with (run / "episodes" / "index-rollout1.jsonl").open("a") as file:
            file.write('{"id": ')
    assert [one.id for one in replay.open(run).episodes()] == ["e0", "e1"]


def test_what_is_not_acknowledged_is_sent_again(run, monkeypatch):
    monkeypatch.setattr("agentrl.replay.remote_recording._RETRY_S", 0.05)
    receiver, calls, arrived = SpoolReceiver(run), [], threading.Event()

    def deliver(parcel):
        calls.append(parcel)
        receiver.apply("a", parcel)  # written, but the acknowledgement is lost
        if len(calls) < 3:
            raise ConnectionError("node 1 does not answer")
        arrived.set()

    spool = Spool(deliver)
    with Recorder(spool.folder, frames="none", writer="rollout1") as recorder:
        recorder.episode(scored("e0"), split="train", step=0)
    assert arrived.wait(10)
    spool.close(10)
    receiver.close()
    assert [one.id for one in replay.open(run).episodes()] == ["e0"]


def test_the_state_of_phones_is_replaced_and_removed(run):
    receiver = SpoolReceiver(run)
    spool = Spool(lambda parcel: receiver.apply("a", parcel))
    phones = LivePhones(spool.folder, "rollout1")
    phones.playing("emulator-5554", "e0")
    file = run / "live" / "rollout1.json"
    for _ in range(100):
        if file.exists():
            break
        threading.Event().wait(0.05)
    assert "emulator-5554" in file.read_text()
    phones.close()
    spool.close(10)
    assert not file.exists()


def test_what_cannot_be_delivered_stays(run, monkeypatch):
    def deliver(parcel):
        raise ConnectionError("node 1 does not answer")

    spool = Spool(deliver)
    with Recorder(spool.folder, frames="none", writer="rollout1") as recorder:
        recorder.episode(scored("e0"), split="train", step=0)
    spool.close(0.1)
    assert [one.id for one in replay.open(spool.folder).episodes()] == ["e0"]


def test_lines_that_only_partly_fit_are_not_acknowledged(run):
    receiver, lines = SpoolReceiver(run), b"a line of a log\n" * 20
    parcel = Parcel(lines=[("logs/rollout1.log", 0, lines)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="the disk is full"):
            receiver.apply("a", parcel)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    receiver.apply("a", parcel)
    assert (run / "logs" / "rollout1.log").read_bytes() == lines


def test_a_parcel_cannot_leave_the_run(run):
    with pytest.raises(ValueError, match="leaves the run"):
        SpoolReceiver(run).apply("a", Parcel(files=[("../else", b"")]))
