"""Shows our apps in the browser of real phones, so that nothing has to be installed on them.

An app runs in this process (`PagedApp`), `PageServer` serves its page, the phone reaches it through
`adb reverse`, and `PagedDevice` is that phone as a `Device`. `PageAssigner` decides which phones
need a page, and starts the web server with the first of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError
from agentrl.phone_page.page_assignment import PageAssigner

_PUBLIC = {
    "PageServer": "agentrl.phone_page.page_server",
    "PagedApp": "agentrl.phone_page.page_app",
    "PagedDevice": "agentrl.phone_page.paged_device",
    "PageVisibility": "agentrl.phone_page.page_slot",
    "PageStatus": "agentrl.phone_page.page_app",
}

__all__ = ["PageAssigner", "PageServer", "PageStatus", "PageVisibility", "PagedApp", "PagedDevice"]

if TYPE_CHECKING:
    from agentrl.phone_page.page_app import PagedApp, PageStatus
    from agentrl.phone_page.page_server import PageServer
    from agentrl.phone_page.page_slot import PageVisibility
    from agentrl.phone_page.paged_device import PagedDevice


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'agentrl.phone_page' has no attribute {name!r}")
    try:
        return getattr(import_module(_PUBLIC[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "websockets"):
            raise
        raise ConfigError(
            f"showing apps on real phones through a page needs {error.name}, not installed: "
            "pip install 'agentrl-screens[page]'"
        ) from error
