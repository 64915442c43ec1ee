"""Android phones: ADB connections, captures, input, a pool, and waiting for the screen to settle.

Environments use `open_device`, `Device`, the actions, `ActionSyntax`, `act_and_settle`, and
`AppGuard`, which keeps the agent in its app.
"""

from agentrl.actions.screen_action_syntax import ActionSyntax
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
)
from agentrl.devices.device import (
    AppState,
    CommandResult,
    Deadlines,
    Device,
    Look,
    Window,
)
from agentrl.devices.device_opener import DeviceWrapper, OpenSettings
from agentrl.devices.device_sources import check_source, open_device, open_source
from agentrl.devices.guard.app_guard import AppExit, AppGuard, GuardedResult
from agentrl.devices.input.act_and_settle import Settled, act_and_settle
from agentrl.devices.pool import DevicePool
from agentrl.devices.pool.lease import LeasableDevice
from agentrl.devices.pool.pool_manager import PoolOptions
from agentrl.devices.screen_regions import ScreenRegion

__all__ = [
    "Action",
    "ActionSyntax",
    "AppExit",
    "AppGuard",
    "AppState",
    "CommandResult",
    "Deadlines",
    "Device",
    "DevicePool",
    "DeviceWrapper",
    "Done",
    "Drag",
    "GuardedResult",
    "Key",
    "LeasableDevice",
    "LongPress",
    "Look",
    "OpenSettings",
    "PoolOptions",
    "ScreenRegion",
    "Settled",
    "Swipe",
    "Tap",
    "Type",
    "Wait",
    "Window",
    "act_and_settle",
    "check_source",
    "open_device",
    "open_source",
]
