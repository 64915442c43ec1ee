"""Opens web pages in a phone's browser."""

from agentrl.devices.device import Device
from agentrl.errors import DeviceError

_SAME_TAB = ("--es", "com.android.browser.application_id", "org.agentrl.page")
"""Makes browsers reuse one tab per calling application, so tabs do not pile up on the phone."""


def open_url(device: Device, url: str, package: str | None = None) -> None:
    """Open a page, without waiting for it.

    Args:
        device: the phone.
        url: address of the page.
        package: the browser; None opens the phone's default browser.

    Raises:
        DeviceError: no browser opens it.
    """
    view = ("am", "start", "-a", "android.intent.action.VIEW", "-d", url, *_SAME_TAB)
    output = device.shell(*view, *(() if package is None else ("-p", package)))
    # `am start` may fail and still exit with 0; its other lines quote the URL.
    if any(line.lstrip().startswith("Error") for line in output.splitlines()):
        raise DeviceError(f"{device.serial}: cannot open a browser: {output.strip()[:500]}")
