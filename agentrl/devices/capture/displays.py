"""Which of a phone's displays is captured: the one on which apps are started."""

import re

from agentrl.devices.capture.capture_method import DISPLAY
from agentrl.devices.device import Device

_PHYSICAL = ("dumpsys", "SurfaceFlinger", "--display-id")
_PHYSICAL_ID = re.compile(r"^Display (\d+)", re.MULTILINE)
_VIEWPORT = re.compile(r"DisplayViewport\{([^{}]*+)\}")
_UNIQUE_ID = re.compile(r"uniqueId='local:(\d++)'")


def read_display_id(device: Device) -> str:
    """The id of the display that shows apps, for `screencap -d`; "" if the phone has only one.

    Without it, `screencap` takes the first of several displays: on a phone that folds, or that
    has a cover screen, that may be the dark one.

    Raises:
        DeviceError: the phone failed.
    """
    physical, display = device.batch(_PHYSICAL, DISPLAY)
    if len(set(_PHYSICAL_ID.findall(physical.output))) < 2:
        return ""
    for viewport in _VIEWPORT.findall(display.output):
        if " displayId=0," in viewport and (found := _UNIQUE_ID.search(viewport)):
            return str(found[1])
    return ""
