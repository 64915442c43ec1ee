"""What an app publishes in a file on the phone."""

import json

from agentrl.devices.device import Result, State
from agentrl.errors import DeviceError
from agentrl.virtual_phone.apps.app import state_path


def read_command(package: str) -> tuple[str, ...]:
    """The command whose output the others here read."""
    return ("cat", state_path(package))


def state_in(result: Result) -> State | None:
    """A state that counts touches; None where there is none."""
    try:
        state = json.loads(result.output) if not result.code else None
    except (ValueError, RecursionError):  # caught in the middle of a write, or no state at all
        return None
    return state if isinstance(state, dict) and type(state.get("touches")) is int else None


def state_of(package: str, result: Result) -> State:
    """Whatever the app publishes.

    Raises:
        DeviceError: it publishes none, or what it wrote is no JSON object.
    """
    if result.code:
        raise DeviceError(f"{package} publishes no state: {result.output.strip()}")
    try:
        state = json.loads(result.output)
    except (ValueError, RecursionError) as error:
        raise DeviceError(f"state of {package} is no JSON: {error}") from error
    if not isinstance(state, dict):
        raise DeviceError(f"state of {package} is no JSON object")
    return state
