"""Android phones: connections over ADB, captures, input, a pool, and waiting for the screen.

Environments use `open_device`, `Device`, the actions, `Grammar`, `act_and_settle`, and `Guard`,
which keeps the agent in its app.
"""

from agentrl.devices.actions import (
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
from agentrl.devices.grammar import Grammar, format_action, parse_action
from agentrl.devices.guard import Guard, Guarded, Left
from agentrl.devices.opener import Around
from agentrl.devices.opening import check_source, open_device, open_source
from agentrl.devices.pool import DevicePool
from agentrl.devices.pool.lease import Lendable
from agentrl.devices.pool.lending import PoolOptions
from agentrl.devices.protocol import Deadlines, Device, Look, Result, State
from agentrl.devices.regions import Region
from agentrl.devices.settle import Settled, act_and_settle
from agentrl.devices.window import Window

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
