"""Checks of a driver, a class of `devices.driver`, with the real adb server and a virtual phone."""

import socket
import threading
import time
from contextlib import closing

import numpy as np

from agentrl.actions.screen_actions import Tap
from agentrl.check.extension_catalog import reference
from agentrl.check.support.virtual_probe_phone import PACKAGE, probe_phone
from agentrl.child_process import free_port
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.adb_socket import AdbRefused, AdbSocket
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.adb_phone import AdbPhone
from agentrl.errors import DeviceOffline

_NO_PHONE = "agentrl-check-no-such-phone"
_SHORT_S = 0.5
_GRACE_S = 5.0


def check_lists_phones(target: type[AdbSocket]) -> None:
    """The driver lists the adb server's phones."""
    with probe_phone() as phone:
        found = _server(target).devices()
        assert found.get(phone.serial) == "device", (
            f"{phone.serial} is connected, but devices() is {found}; read_block() reads the "
            "answer after check_accepted()"
        )


def check_refusal(target: type[AdbSocket]) -> None:
    """A request that the server refuses raises AdbRefused with the server's message."""
    server = _server(target)
    message = None
    with server.open_socket(Deadline(_GRACE_S)) as link:
        try:
            link.request(f"host:transport:{_NO_PHONE}")
        except AdbRefused as refused:
            message = str(refused)
    assert message is not None, "check_accepted() returned although the server answered FAIL"
    assert _NO_PHONE in message, f"the server's message is missing: {message!r}"


def check_no_server(target: type[AdbSocket]) -> None:
    """Without a server, connecting raises OSError."""
    try:
        target("127.0.0.1", free_port(), Deadline(_GRACE_S)).close()
    except OSError:
        return
    raise AssertionError("connecting to a closed port raised no OSError")


def check_deadline(target: type[AdbSocket]) -> None:
    """A server that never answers raises TimeoutError at the deadline."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        started = time.monotonic()
        with target("127.0.0.1", listener.getsockname()[1], Deadline(_SHORT_S)) as link:
            try:
                link.request("host:version")
            except TimeoutError:
                waited_s = time.monotonic() - started
                assert waited_s < _SHORT_S + _GRACE_S, f"waited {waited_s:.1f} s"
                return
    raise AssertionError("check_accepted() returned without an answer")


def check_close(target: type[AdbSocket]) -> None:
    """Closing a connection ends a read in another thread."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = target("127.0.0.1", listener.getsockname()[1], Deadline(60.0))

        def read() -> None:
            try:
                link.receive()
            except OSError:
                pass
            finally:
                ended.set()

        threading.Thread(target=read, daemon=True).start()
        # By now the thread is most likely in `receive`; if it isn't, the check passes anyway.
        time.sleep(0.1)
        link.close()
        assert ended.wait(_GRACE_S), f"a read still waits {_GRACE_S:g} s after close()"


def check_plays(target: type[AdbSocket]) -> None:
    """The driver can capture, tap and type on a phone."""
    with probe_phone(driver=reference(target)) as phone:
        before = phone.screenshot()
        phone.perform(Tap(0.5, 0.25))
        touched = phone.app_state(PACKAGE)["last"]
        assert np.allclose(touched, (0.5, 0.25), atol=0.05), f"(0.5, 0.25) touched {touched}"
        assert not np.array_equal(before, phone.screenshot()), "the touch does not show"
        # Quotes, `$` and characters beyond ASCII have to survive two shells.
        text = "a \"b\" $HOME 'c' \u00e4\u4e2d;"
        assert phone.shell("echo", text) == f"{text}\n"


def check_large_answers(target: type[AdbSocket]) -> None:
    """Frames arrive whole and equal the frames that adbutils reads."""
    with probe_phone(driver=reference(target)) as phone:
        frames = [phone.screenshot() for _ in range(5)]
        with closing(AdbPhone(AdbServer.from_environment(), phone.serial)) as usual:
            expected = usual.screenshot()
        for frame in frames:
            assert np.array_equal(frame, expected), "a frame differs from adbutils' frame"


def check_offline(target: type[AdbSocket]) -> None:
    """Using a phone that is not connected raises DeviceOffline."""
    transport = DeviceTransport(_server(target), _NO_PHONE)
    try:
        with transport.opened("shell:true", Deadline(_GRACE_S)):
            pass
    except DeviceOffline:
        return
    raise AssertionError(f"opening a service of {_NO_PHONE} did not raise DeviceOffline")


def _server(target: type[AdbSocket]) -> AdbServer:
    server = AdbServer.from_environment(reference(target))
    server.ensure()
    return server
