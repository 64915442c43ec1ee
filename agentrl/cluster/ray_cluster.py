"""Join a Ray cluster, or start one on this machine."""

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentrl import extras
from agentrl.errors import ClusterError, ConfigError

log = logging.getLogger(__name__)

_CONNECT_S = 10.0
"""Deadline for connecting to a cluster's address, in seconds."""
_SETTINGS = b"\x04"
"""Type of the frame that each side of an HTTP/2 connection sends first."""
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)
_GET_TOKEN = (
    "If the cluster requires a token, copy ~/.ray/auth_token from its head node to this machine "
    "(ray get-auth-token prints it). "
)
_joined_here = False
"""Whether `join_cluster` started Ray's session; a user may have called `ray.init` before."""
_reaper: "subprocess.Popen[bytes] | None" = None
"""Process running `ray_reaper` while a Ray started by `join_cluster` is running."""


def join_cluster() -> Any:
    """Join the cluster at RAY_ADDRESS, or start one on this machine; return the ray module.

    Raises:
        ConfigError: Ray is not installed.
        ClusterError: Ray did not start, or the cluster cannot be joined.
    """
    # Do not send usage statistics to Ray's developers on a user's behalf.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # By default, Ray lowers its workers' priority, even below that of the virtual phones they use.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if "ray" not in sys.modules and "RAY_ADDRESS" not in os.environ:
        # With 0, a single-machine Ray listens on loopback only, as it does on Windows and macOS.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    if "ray" not in sys.modules and ("RAY_ADDRESS" not in os.environ or _has_token()):
        # `ray start` requires a token if there is one, but `ray.init` does not send it by default;
        # clusters without authentication ignore it. For a cluster that Ray starts itself, this is
        # the default, but setting it avoids a notice in the log.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ImportError:
        raise ConfigError(extras.NO_RAY) from None
    global _joined_here
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        _check_reachable(address)
        if address is None:
            _start_reaper()
        try:
            with _own_sigterm_handler():
                ray.init(
                    # With None, Ray would join the last cluster started here, even if it is gone.
                    address=address or "local",
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    configure_logging=False,
                )
        except Exception as error:  # Ray also raises plain exceptions here
            at = os.environ.get("RAY_ADDRESS", "this machine")
            token = "" if address is None or _has_token() else _GET_TOKEN
            raise ClusterError(
                f"Ray did not start on {at}: {str(error).rstrip('.')}. {token}If the machine is "
                "busy, try again; rollout.launcher=local works without Ray"
            ) from error
        _log_messages_of_raylets()
        _joined_here = True
    return ray


def _log_messages_of_raylets() -> None:
    """Send Ray's terminal output about lost processes and nodes to the log at level DEBUG.

    `log_to_driver=False` does not turn that output off. It often comes after the error that ends
    the job, which already says what was lost and what to do.
    """
    worker: Any = sys.modules.get("ray._private.worker")
    if worker is not None:
        worker.print_to_stdstream = lambda data, **_: log.debug("%s", "\n".join(data["lines"]))


def _start_reaper() -> None:
    global _reaper
    # Don't use `child_process`, which would end the reaper together with this process.
    if _reaper is None and sys.platform == "linux":
        script = str(Path(__file__).with_name("ray_reaper.py"))
        _reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", script, str(os.getpid())],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )


def _has_token() -> bool:
    """Return whether Ray can find a token for clusters that require one."""
    named = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    return named or (Path.home() / ".ray" / "auth_token").is_file()


def _check_reachable(address: str | None) -> None:
    """Check that a gRPC server answers at a cluster's address.

    Otherwise, `ray.init` would try for minutes.

    Args:
        address: RAY_ADDRESS. Forms other than `HOST:PORT` and `ray://HOST:PORT` are left to Ray.

    Raises:
        ClusterError: no gRPC server answers there in time.
    """
    found = re.fullmatch(r"(?:ray://)?\[?([^/\[\]]+)\]?:(\d{1,5})", address or "")
    if found is None:
        return
    try:
        with socket.create_connection((found[1], int(found[2])), timeout=_CONNECT_S) as connection:
            # A gRPC server replies with an HTTP/2 SETTINGS frame (RFC 9113, section 3.4); any other
            # server does not.
            if os.environ.get("RAY_USE_TLS") != "1":
                connection.sendall(_HTTP2_PREFACE)
                with connection.makefile("rb") as answer:
                    header = answer.read(9)  # SETTINGS frame header: length, type, flags, stream
                if header[3:4] != _SETTINGS:
                    raise OSError("the server there is not Ray")
    except (OSError, OverflowError, UnicodeError) as error:
        why = f"no answer within {_CONNECT_S:g} s" if isinstance(error, TimeoutError) else error
        raise ClusterError(
            f"RAY_ADDRESS={address}: the cluster cannot be reached ({why}). Check the address and "
            "whether its head node is running (ray start --head), or unset RAY_ADDRESS to start "
            "Ray on this machine"
        ) from error


@contextmanager
def _own_sigterm_handler() -> Iterator[None]:
    """Keep this process's SIGTERM handler, which `ray.init` replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def leave_cluster() -> None:
    """Undo `join_cluster`, but keep a session that existed before."""
    global _joined_here, _reaper
    # Don't import ray, which takes seconds in a process that never joined.
    ray = sys.modules.get("ray")
    if _joined_here and ray is not None and ray.is_initialized():
        ray.shutdown()
    _joined_here = False
    if _reaper is not None:
        _reaper.kill()
        _reaper.communicate()
        _reaper = None
