"""A phone as the framework sees it: drivers, a pool, and waiting for the screen.

What environments use: `open_device`, `Device`, the actions and `act_and_settle`.
"""

from agentrl.devices.actions import (
    Action,
    Key,
    Swipe,
    Tap,
    Wait,
    format_action,
    parse_action,
    perform,
)
from agentrl.devices.opening import check_source, open_device, open_source
from agentrl.devices.pool import DevicePool
from agentrl.devices.protocol import Deadlines, Device, Result
from agentrl.devices.settle import Settled, act_and_settle, read_state

__all__ = [
    "Action",
    "Deadlines",
    "Device",
    "DevicePool",
    "Key",
    "Result",
    "Settled",
    "Swipe",
    "Tap",
    "Wait",
    "act_and_settle",
    "check_source",
    "format_action",
    "open_device",
    "open_source",
    "parse_action",
    "perform",
    "read_state",
]
