"""Access control for the viewer: allowed requests, the token, and security headers."""

import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse

from agentrl.cross_origin_requests import foreign_request, is_loopback
from agentrl.errors import AgentRLError

log = logging.getLogger(__name__)

_HEADERS: Final = {
    # Load only from this server, and forbid framing and inline scripts.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TOKEN_HEADER = "x-agentrl-token"
_NO_TOKEN = "the token is missing; open the complete address that the server printed"


class AccessGuard:
    """Decides which requests the server answers."""

    def __init__(self, host: str, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        self.is_loopback = is_loopback(host)
        self._host = host
        # Browsers send cookies to every port of a host, so two servers need different names.
        self.cookie = f"agentrl-{port}"

    def refusal(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> str | None:
        """Return the reason to refuse a request, or None to accept it."""
        # Beyond loopback, even reading needs the token, which the browser keeps as a cookie.
        if (why := foreign_request(headers, self._host)) is not None:
            return why
        if not self.is_loopback and not self.knows(cookies.get(self.cookie, "")):
            return _NO_TOKEN
        return None

    def knows(self, token: str) -> bool:
        """Return whether this is the token, comparing in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())


async def guard_requests(
    request: Request, answer: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Middleware: answer a request only if the application's guard accepts it."""
    guard: AccessGuard = request.app.state.guard
    brought = request.query_params.get("token")
    if brought is not None and guard.knows(brought) and not guard.is_loopback:
        # Redirect to the page, which keeps the token for later changes. The path gets exactly one
        # leading slash, because `//HOST` would lead to a different host.
        page = f"/{request.url.path.lstrip('/')}#token={brought}"
        response: Response = RedirectResponse(page, 303)
        response.set_cookie(guard.cookie, brought, httponly=True, samesite="strict")
    elif (why := guard.refusal(request.headers, request.cookies)) is not None:
        response = Response(f"{why}\n", 403, media_type="text/plain")
    else:
        response = await answer(request)
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", "no-cache")
    return response


class TokenMissing(AgentRLError):
    """A request that changes something lacks the token."""


def require_token(request: Request) -> None:
    """FastAPI dependency: refuse a request without the token.

    Raises:
        TokenMissing: the request lacks the token.
    """
    guard: AccessGuard = request.app.state.guard
    if not guard.knows(request.headers.get(_TOKEN_HEADER, "")):
        raise TokenMissing(_NO_TOKEN)


CHANGES = (Depends(require_token),)
"""FastAPI dependencies of requests that change something."""
