"""Reads the state that an app publishes in a file on the phone."""

import json

from agentrl.devices.device import AppState, CommandResult
from agentrl.errors import DeviceError
from agentrl.virtual_phone.apps.app import state_path


def read_command(package: str) -> tuple[str, ...]:
    """The command whose result `state_in` and `state_of` parse."""
    return ("cat", state_path(package))


def state_in(result: CommandResult) -> AppState | None:
    """The state, if there is one with a touch count, else None."""
    try:
        state = json.loads(result.output) if not result.code else None
    except (ValueError, RecursionError):  # read during a write, or not a state at all
        return None
    return state if isinstance(state, dict) and type(state.get("touches")) is int else None


def state_of(package: str, result: CommandResult) -> AppState:
    """The state, whatever it contains.

    Raises:
        DeviceError: the app publishes none, or something other than a JSON object.
    """
    if result.code:
        raise DeviceError(f"{package} publishes no state: {result.output.strip()}")
    try:
        state = json.loads(result.output)
    except (ValueError, RecursionError) as error:
        raise DeviceError(f"the state of {package} is not JSON: {error}") from error
    if not isinstance(state, dict):
        raise DeviceError(f"the state of {package} is not a JSON object")
    return state
