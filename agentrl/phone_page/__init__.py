"""Real phones play our apps with nothing installed: one thin page shows what is drawn here.

An app runs in this process (`PagedApp`), `PageServer` serves its page, a phone reaches it through
`adb reverse`, and `PagedDevice` is that phone as the framework sees it. `Pager` says which phones
need one, and loads the web server with the first of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError
from agentrl.phone_page.page_assignment import Pager

_PUBLIC = {
    "PageServer": "agentrl.phone_page.page_server",
    "PagedApp": "agentrl.phone_page.page_app",
    "PagedDevice": "agentrl.phone_page.paged_device",
    "Sight": "agentrl.phone_page.page_slot",
    "Status": "agentrl.phone_page.page_app",
}

__all__ = ["PageServer", "PagedApp", "PagedDevice", "Pager", "Sight", "Status"]

if TYPE_CHECKING:
    from agentrl.phone_page.page_app import PagedApp, Status
    from agentrl.phone_page.page_server import PageServer
    from agentrl.phone_page.page_slot import Sight
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
            f"real phones show our apps on a page, and {error.name} serves it, which is not "
            "installed: pip install 'agentrl[page]'"
        ) from error
