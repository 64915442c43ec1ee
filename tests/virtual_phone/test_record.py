import asyncio
import io
import os
import subprocess
import sys

import av
import numpy as np
import pytest

from agentrl.devices import Device
from agentrl.devices.adb import find_adb
from agentrl.virtual_phone.apps.probe_app import ProbeApp
from agentrl.virtual_phone.commands import COMMANDS
from agentrl.virtual_phone.shell.interpreter import ShellInterpreter
from agentrl.virtual_phone.shell.redirects import CommandIO
from agentrl.virtual_phone.virtual_phone import VirtualPhone
from tests.virtual_phone.run import run
from tests.virtual_phone.wire import PATIENCE_S

STREAM = "screenrecord --output-format=h264"


class Viewer:
    """Watches the stream of a phone, as a driver does: byte after byte, without its end."""

    def __init__(self, phone: VirtualPhone) -> None:
        self.phone = phone
        self.pictures: list[np.ndarray] = []
        self.key_frames = 0
        self._codec = av.CodecContext.create("h264", "r")
        self._codec.thread_type = "NONE"
        self._came = asyncio.Event()

    def take(self, data: bytes | memoryview) -> None:
        for packet in self._codec.parse(bytes(data)):
            self.key_frames += packet.is_keyframe
            for frame in self._codec.decode(packet):
                self.pictures.append(frame.to_ndarray(format="rgb24"))
        self._came.set()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.pictures) < count:
                self._came.clear()
                await self._came.wait()

    def start(self, options: str = "") -> "asyncio.Task[int]":
        io = CommandIO(out=self.take, err=sys.stderr.buffer.write)
        shell = ShellInterpreter(phone=self.phone, commands=COMMANDS, io=io)
        return asyncio.create_task(shell.run(f"{STREAM} {options} -"))

    def differs(self) -> float:
        """How far the last picture is from the screen, of 255, on average."""
        screen = self.phone.shown.frame.rgba[..., :3].astype(int)
        return float(np.abs(screen - self.pictures[-1]).mean())


@pytest.fixture
def phone() -> VirtualPhone:
    phone = VirtualPhone([ProbeApp()], size=(144, 256), effect_delay_ms=(0, 0))
    phone.tasks.launch(ProbeApp.package, {})
    return phone


async def test_every_change_is_a_picture_that_comes_at_once_and_is_the_screen(
    phone: VirtualPhone,
) -> None:
    viewer = Viewer(phone)
    recording = viewer.start()
    await viewer.wait_for(1)
    assert viewer.key_frames == 1
    assert viewer.pictures[0].shape == (256, 144, 3)
    for count in range(2, 12):
        assert viewer.differs() < 6
        phone.input.touch(30, 40 if count % 2 else 200)
        await viewer.wait_for(count)
    assert len(viewer.pictures) == 11
    assert not recording.done()
    recording.cancel()


async def test_a_stream_ends_at_its_limit_and_has_the_size_it_is_asked_for(
    phone: VirtualPhone,
) -> None:
    viewer = Viewer(phone)
    recording = viewer.start("--size 101x200 --time-limit 0.5 --bit-rate 4M")
    await viewer.wait_for(1)
    assert viewer.pictures[0].shape == (200, 100, 3)
    assert await asyncio.wait_for(recording, PATIENCE_S) == 0


async def test_a_phone_that_turns_keeps_the_size_of_its_stream(phone: VirtualPhone) -> None:
    viewer = Viewer(phone)
    recording = viewer.start()
    await viewer.wait_for(1)
    phone.faults.set("rotation", "1")
    await viewer.wait_for(2)
    assert viewer.pictures[1].shape == (256, 144, 3)
    recording.cancel()


def test_a_file_is_a_video(phone: VirtualPhone) -> None:
    assert run("screenrecord --time-limit 0.3 /sdcard/x.mp4", phone).code == 0
    with av.open(io.BytesIO(phone.files.read("/sdcard/x.mp4"))) as video:
        assert len(list(video.decode(video=0))) >= 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("", "Must specify output file"),
        ("--size 5x5 -", "Invalid size 5x5"),
        ("--size x -", "invalid literal"),
        ("--bit-rate 5 -", "Bit rate 5 outside"),
        ("--wrong -", "unrecognized option --wrong"),
        ("--time-limit x -", "could not convert"),
    ],
)
def test_what_cannot_be_recorded_says_why(
    phone: VirtualPhone, options: str, complaint: str
) -> None:
    done = run(f"{STREAM} {options}", phone)
    assert done.code == 2
    assert complaint in done.err


def test_without_an_encoder_the_command_says_what_to_install(
    phone: VirtualPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    done = run(f"{STREAM} -", phone)
    assert done.code == 1
    assert "pip install 'agentrl[stream]'" in done.err


@pytest.mark.adb
def test_a_stream_comes_through_the_adb_server_as_the_screen_changes(
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
    pictures = 0
    while pictures < 4:
        data = os.read(recording.stdout.fileno(), 1 << 16)
        assert data, "the stream has ended"
        frames = [frame for packet in codec.parse(data) for frame in codec.decode(packet)]
        assert all((frame.width, frame.height) == (360, 640) for frame in frames)
        pictures += len(frames)
        if frames:
            virtual_phone.tap(0.2, 0.2)
    recording.kill()
    recording.communicate()
