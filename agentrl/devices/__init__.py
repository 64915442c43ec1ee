"""A phone as the framework sees it: drivers, a pool, and waiting for the screen.

What environments use: `open_device`, `Device`, the actions, a `Grammar`, `act_and_settle`, and a
`Guard` around it.
"""

from agentrl.actions.action_grammar import Grammar, format_action, parse_action
from agentrl.actions.screen_actions import (
    Action,
    Done,
    Drag,
    Key,
    LongPress,
    Swipe,
    Tap,
    Type,
    Wait,
    perform,
)
from agentrl.devices.device import Deadlines, Device, Look, Result, State
from agentrl.devices.device_opener import Around
from agentrl.devices.device_sources import check_source, open_device, open_source
from agentrl.devices.foreground_window import Window
from agentrl.devices.guard.app_guard import Guard, Guarded, Left
from agentrl.devices.input.settle import Settled, act_and_settle
from agentrl.devices.pool import DevicePool
from agentrl.devices.pool.lease import Lendable
from agentrl.devices.pool.lender import PoolOptions
from agentrl.devices.screen_regions import Region

__all__ = [
    "Action",
    "Around",
    "Deadlines",
    "Device",
    "DevicePool",
    "Done",
    "Drag",
    "Grammar",
    "Guard",
    "Guarded",
    "Key",
    "Left",
    "Lendable",
    "LongPress",
    "Look",
    "PoolOptions",
    "Region",
    "Result",
    "Settled",
    "State",
    "Swipe",
    "Tap",
    "Type",
    "Wait",
    "Window",
    "act_and_settle",
    "check_source",
    "format_action",
    "open_device",
    "open_source",
    "parse_action",
    "perform",
]
