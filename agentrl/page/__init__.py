"""Shows our apps in the browser of real phones, so that nothing has to be installed on them.

An app runs in this process (`PagedApp`), `PageServer` serves its page, the phone reaches it through
`adb reverse`, and `PagedDevice` is that phone as a `Device`. `Pager` decides which phones need a
page, and starts the web server with the first of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError
from agentrl.page.pager import Pager

_PUBLIC = {
    "PageServer": "agentrl.page.server",
    "PagedApp": "agentrl.page.host",
    "PagedDevice": "agentrl.page.device",
    "Sight": "agentrl.page.seat",
    "Status": "agentrl.page.host",
}

__all__ = ["PageServer", "PagedApp", "PagedDevice", "Pager", "Sight", "Status"]

if TYPE_CHECKING:
    from agentrl.page.device import PagedDevice
    from agentrl.page.host import PagedApp, Status
    from agentrl.page.seat import Sight
    from agentrl.page.server import PageServer


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'agentrl.page' has no attribute {name!r}")
    try:
        return getattr(import_module(_PUBLIC[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "websockets"):
            raise
        raise ConfigError(
            f"showing apps on real phones through a page needs {error.name}, not installed: "
            "pip install 'agentrl[page]'"
        ) from error
