"""Real phones play our apps with nothing installed: one thin page shows what is drawn here.

An app runs in this process (`PagedApp`), `PageServer` serves its page, a phone reaches it through
`adb reverse`, and `PagedDevice` is that phone as the framework sees it.
"""

from agentrl.errors import ConfigError

try:
    from agentrl.page.browser import Region
    from agentrl.page.device import PagedDevice
    from agentrl.page.host import PagedApp, Status
    from agentrl.page.pager import Pager
    from agentrl.page.seat import Sight
    from agentrl.page.server import PageServer
    from agentrl.page.tunnel import AdbTunnel, Tunnel
except ModuleNotFoundError as error:
    if error.name not in ("fastapi", "uvicorn", "websockets"):
        raise
    raise ConfigError(
        f"real phones show our apps on a page, and {error.name} serves it, which is not installed: "
        "pip install 'agentrl[page]'"
    ) from error

__all__ = [
    "AdbTunnel",
    "PageServer",
    "PagedApp",
    "PagedDevice",
    "Pager",
    "Region",
    "Sight",
    "Status",
    "Tunnel",
]
