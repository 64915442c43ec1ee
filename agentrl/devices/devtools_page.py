"""A page in a phone's Chrome, through the DevTools protocol that it offers to adb."""

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote

from agentrl.devices.device import Device
from agentrl.errors import ConfigError, DeviceError, DeviceTimeout
from agentrl.extras import GET_WEB

ADDRESS = "localabstract:chrome_devtools_remote"
_MAX_ANSWER = 1 << 24
"""Maximum number of bytes of an answer."""
_MAX_SHOWN = 500
_MAX_EXPRESSION = 120


class DevToolsPage:
    """One page of a phone's Chrome, as long as it exists.

    Args:
        device: the phone.
        page: the page, as listed by `pages`.

    Raises:
        ConfigError: websockets is not installed.
        DeviceError: the page does not exist anymore.
    """

    def __init__(self, device: Device, page: Mapping[str, Any]) -> None:
        try:
            from websockets.sync.client import connect
        except ImportError as error:
            raise ConfigError(
                f"pages are read with websockets, which is not installed; run: {GET_WEB}"
            ) from error
        self._serial, self._timeout_s = device.serial, device.deadlines.command_s
        self._last = 0
        path = f"/devtools/page/{quote(str(page['id']), safe='')}"
        link, self._connection = device.connect(ADDRESS), ExitStack()
        try:
            opening = connect(
                f"ws://localhost{path}",
                sock=link,
                proxy=None,
                compression=None,
                max_size=_MAX_ANSWER,
                open_timeout=self._timeout_s,
                close_timeout=1.0,
            )
            self._socket = self._connection.enter_context(opening)
        except Exception as error:  # errors of websockets, such as that the page is gone
            link.close()
            raise self._failure(error, "cannot be inspected") from error

    def evaluate(self, expression: str) -> Any:
        """Evaluate JavaScript in the page, and wait for its promise if it is one.

        Args:
            expression: JavaScript whose value can be written as JSON.

        Raises:
            DeviceTimeout: the page does not answer within `deadlines.command_s`.
            DeviceError: the expression raised an exception, or the page is gone.
        """
        self._last += 1
        request = {
            "id": self._last,
            "method": "Runtime.evaluate",
            "params": {"expression": expression, "returnByValue": True, "awaitPromise": True},
        }
        end_s = time.monotonic() + self._timeout_s
        try:
            self._socket.send(json.dumps(request))
            while True:
                answer = json.loads(self._socket.recv(max(end_s - time.monotonic(), 0.0)))
                if answer.get("id") == self._last:
                    return self._value(answer, expression)
        except DeviceError:
            raise
        except Exception as error:  # errors of websockets, and malformed answers
            raise self._failure(error, f"does not answer {_short(expression)}") from error

    def close(self) -> None:
        """Close the connection; the page stays open."""
        self._connection.close()

    def _value(self, answer: Mapping[str, Any], expression: str) -> Any:
        failure = answer.get("error") or answer["result"].get("exceptionDetails")
        if failure is not None:
            exception = failure.get("exception", {}).get("description")
            text = str(exception or failure.get("message") or failure.get("text"))
            raise DeviceError(
                f"{self._serial}: JavaScript failed in the page with "
                f"{text.partition(chr(10))[0][:_MAX_SHOWN]}: {_short(expression)}"
            )
        return answer["result"]["result"].get("value")

    def _failure(self, error: Exception, what: str) -> DeviceError:
        if isinstance(error, TimeoutError):
            return DeviceTimeout(
                f"{self._serial}: the page {what}: no answer within {self._timeout_s:g} s"
            )
        return DeviceError(f"{self._serial}: the page {what}: {error or type(error).__name__}")


def _short(expression: str) -> str:
    return " ".join(expression.split())[:_MAX_EXPRESSION]


def pages(device: Device) -> list[Mapping[str, Any]]:
    """List the pages of a phone's Chrome, the last used first, with `id`, `url` and `title`.

    Raises:
        DeviceError: Chrome is not running, or offers no pages.
    """
    connection = HTTPConnection("localhost", timeout=device.deadlines.command_s)
    connection.sock = device.connect(ADDRESS)
    connection.sock.settimeout(device.deadlines.command_s)
    try:
        connection.request("GET", "/json/list")
        found = json.loads(connection.getresponse().read(_MAX_ANSWER))
        return [one for one in found if one["type"] == "page"]
    except TimeoutError as error:
        raise DeviceTimeout(
            f"{device.serial}: Chrome does not list its pages within "
            f"{device.deadlines.command_s:g} s"
        ) from error
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        raise DeviceError(f"{device.serial}: Chrome does not list its pages: {error}") from error
    finally:
        connection.close()
