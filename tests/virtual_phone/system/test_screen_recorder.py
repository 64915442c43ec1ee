import asyncio
import io
import os
import subprocess
import sys

import av
import numpy as np
import pytest

from agentrl.devices import Device, Tap
from agentrl.devices.adb import find_adb
from tests.virtual_phone.packet_client import PATIENCE_S
from tests.virtual_phone.shell_runner import run
from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.commands import COMMANDS
from virtual_phone.shell.command_streams import CommandIO
from virtual_phone.shell.interpreter import ShellInterpreter
from virtual_phone.shell.shell_state import ShellState
from virtual_phone.virtual_phone import VirtualPhone

STREAM = "screenrecord --output-format=h264"


class Viewer:
    """Decodes the video stream of a phone as it arrives."""

    def __init__(self, phone: VirtualPhone) -> None:
        self.phone = phone
        self.images: list[np.ndarray] = []
        self.key_frames = 0
        self._codec = av.CodecContext.create("h264", "r")
        self._codec.thread_type = "NONE"
        self._came = asyncio.Event()

    def take(self, data: bytes | memoryview) -> None:
        for packet in self._codec.parse(bytes(data)):
            self.key_frames += packet.is_keyframe
            for frame in self._codec.decode(packet):
                self.images.append(frame.to_ndarray(format="rgb24"))
        self._came.set()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.images) < count:
                self._came.clear()
                await self._came.wait()

    def start(self, options: str = "") -> "asyncio.Task[int]":
        io = CommandIO(out=self.take, err=sys.stderr.buffer.write)
        shell = ShellInterpreter(ShellState(phone=self.phone, io=io), COMMANDS)
        return asyncio.create_task(shell.run(f"{STREAM} {options} -"))

    def differs(self) -> float:
        """Return the mean difference between the last frame and the screen, in [0, 255]."""
        screen = self.phone.shown.frame.rgba[..., :3].astype(int)
        return float(np.abs(screen - self.images[-1]).mean())


@pytest.fixture
def phone() -> VirtualPhone:
    phone = VirtualPhone([ProbeApp()], size=(144, 256), tempo="quick")
    phone.tasks.launch(ProbeApp.package, {})
    return phone


async def test_every_change_is_streamed_at_once_as_a_frame(
    phone: VirtualPhone,
) -> None:
    viewer = Viewer(phone)
    recording = viewer.start()
    await viewer.wait_for(1)
    assert viewer.key_frames == 1
    assert viewer.images[0].shape == (256, 144, 3)
    for count in range(2, 12):
        assert viewer.differs() < 6
        phone.input.touch(30, 40 if count % 2 else 200)
        await viewer.wait_for(count)
    assert len(viewer.images) == 11
    assert not recording.done()
    recording.cancel()


async def test_a_stream_has_the_requested_size_and_ends_at_its_time_limit(
    phone: VirtualPhone,
) -> None:
    viewer = Viewer(phone)
    recording = viewer.start("--size 101x200 --time-limit 0.5 --bit-rate 4M")
    await viewer.wait_for(1)
    assert viewer.images[0].shape == (200, 100, 3)
    assert await asyncio.wait_for(recording, PATIENCE_S) == 0


async def test_rotating_the_phone_keeps_the_size_of_the_stream(phone: VirtualPhone) -> None:
    viewer = Viewer(phone)
    recording = viewer.start()
    await viewer.wait_for(1)
    phone.faults.set("rotation", "1")
    await viewer.wait_for(2)
    assert viewer.images[1].shape == (256, 144, 3)
    recording.cancel()


def test_a_recorded_file_is_a_video(phone: VirtualPhone) -> None:
    assert run("screenrecord --time-limit 0.3 /sdcard/x.mp4", phone).code == 0
    with av.open(io.BytesIO(phone.files.read("/sdcard/x.mp4"))) as video:
        assert len(list(video.decode(video=0))) >= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "Must specify output file"),
        ("--size 5x5 -", "Invalid size 5x5"),
        ("--size x -", "invalid literal"),
        ("--bit-rate 5 -", "Bit rate 5 outside"),
        ("--wrong -", "Unknown option 'wrong'"),
        ("--time-limit x -", "could not convert"),
    ],
)
def test_invalid_recordings_report_the_reason(
    phone: VirtualPhone, options: str, message: str
) -> None:
    done = run(f"{STREAM} {options}", phone)
    assert done.code == 2
    assert message in done.err


def test_without_an_encoder_the_command_says_what_to_install(
    phone: VirtualPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    done = run(f"{STREAM} -", phone)
    assert done.code == 1
    assert "pip install 'agentrl-screens[stream]'" in done.err


@pytest.mark.adb
def test_a_stream_arrives_through_the_adb_server_as_the_screen_changes(
    virtual_phone: Device,
) -> None:
    codec = av.CodecContext.create("h264", "r")
    codec.thread_type = "NONE"
    command = [find_adb(), "-s", virtual_phone.serial, "exec-out"]
    recording = subprocess.Popen(
        [*command, "screenrecord --output-format=h264 --size 360x640 -"],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert recording.stdout is not None
    images = 0
    while images < 4:
        data = os.read(recording.stdout.fileno(), 1 << 16)
        assert data, "the stream has ended"
        frames = [frame for packet in codec.parse(data) for frame in codec.decode(packet)]
        assert all((frame.width, frame.height) == (360, 640) for frame in frames)
        images += len(frames)
        if frames:
            virtual_phone.perform(Tap(0.2, 0.2))
    recording.kill()
    recording.communicate()
