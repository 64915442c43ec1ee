"""The parts of every web application of the viewer: static files, errors, JSON answers."""

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.dependencies.utils import get_flat_dependant
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from agentrl.errors import AgentRLError, ConfigError, DeviceError
from agentrl.text.formatting import printable, quoted
from agentrl.text.name_suggestions import known_names
from agentrl.viewer.access_control import AccessGuard, TokenMissing, guard_requests
from agentrl.viewer.background_reading import StillReading

CACHE_FOREVER = "private, max-age=31536000, immutable"
"""Cache header for the typeface, and for frames, whose ids are hashes of their pixels."""
_NOT_PAGES = ("api", "static", "frames")
"""First path segments of addresses other than pages."""
_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "woff2": "font/woff2",
}


def new_application(guard: AccessGuard, message: Callable[[AgentRLError], str] = str) -> FastAPI:
    """Create an application without pages, which answers refused requests with one line."""
    app = FastAPI(title="agentrl", openapi_url=None)
    app.state.guard, app.state.closing = guard, threading.Event()
    app.middleware("http")(guard_requests)

    @app.exception_handler(StillReading)
    async def wait(_: Request, state: StillReading) -> Response:
        # Don't use an error status: browsers would log each one in their console.
        return as_json({"reading": state.what, "share": state.share}, 202)

    @app.exception_handler(AgentRLError)
    async def refuse(_: Request, error: AgentRLError) -> Response:
        return as_json({"error": message(error)}, _status_of(error))

    @app.exception_handler(RequestValidationError)
    async def refuse_values(_: Request, error: RequestValidationError) -> Response:
        return as_json({"error": "; ".join(map(_invalid_value, error.errors()))}, 422)

    return app


def _invalid_value(error: Mapping[str, Any]) -> str:
    """Describe a FastAPI validation error: the parameter, its value and the allowed values."""
    name = error["loc"][-1]
    if error["type"] == "missing":
        return f"{name}= is missing"
    allowed = error["msg"].replace(" should ", " must ").replace("Input must", "must")
    return f"{name}={quoted(error['input'])}: {allowed}"


def static_files() -> dict[str, bytes]:
    """Return the package's static files by path; no other files are served."""
    files: dict[str, bytes] = {}
    folders = [("", resources.files("agentrl.viewer") / "static")]
    while folders:
        path, folder = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{path}{entry.name}/", entry))
            elif entry.name.rpartition(".")[2] in _MEDIA_TYPES:
                files[path + entry.name] = entry.read_bytes()
    return files


def add_files(
    app: FastAPI,
    files: dict[str, bytes],
    page_file: str,
    pages: Sequence[str],
) -> None:
    """Serve the static files, and one of them as the page at the given addresses."""

    def page(request: Request, status: int = 200) -> Response:
        # A run in a folder of runs is served below its own path, a prefix of its addresses.
        base = f'data-base="{escape(quote(request.scope.get("root_path", "")))}"'.encode()
        content = files[page_file].replace(b'data-base=""', base, 1)
        return Response(content, status, media_type=_MEDIA_TYPES["html"])

    for path in pages:
        app.add_api_route(path, page, methods=["GET"])

    @app.exception_handler(404)
    async def missing(request: Request, _: Exception) -> Response:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if path.lstrip("/").partition("/")[0] in _NOT_PAGES:
            return JSONResponse({"error": "no such address"}, 404)
        return page(request, 404)

    @app.get("/static/{path:path}")
    async def static(path: str) -> Response:
        if path not in files:
            return Response("no such file\n", 404, media_type="text/plain")
        kind = path.rpartition(".")[2]
        # Without the typeface in its cache, a browser would draw each page twice.
        headers = {"Cache-Control": CACHE_FOREVER} if kind == "woff2" else None
        return Response(files[path], media_type=_MEDIA_TYPES[kind], headers=headers)


def only_known_parameters(request: Request) -> None:
    """Refuse unknown query parameters, which FastAPI would silently ignore."""
    route: APIRoute = request.scope["route"]
    known = [field.alias for field in get_flat_dependant(route.dependant).query_params]
    for name in request.query_params:
        if name not in known:
            raise _UnknownParameter(
                f"unknown parameter {quoted(name)}"
                f"{known_names(name, known, label='Known parameters')}"
            )


class _UnknownParameter(AgentRLError):
    """A query parameter does not exist."""


class RunGone(AgentRLError):
    """The run's folder no longer exists."""


_STATUS = {
    TokenMissing: 403,
    _UnknownParameter: 422,
    RunGone: 410,
    ConfigError: 404,
    DeviceError: 503,
}
"""HTTP status by error; a phone may go offline during use."""


def _status_of(error: AgentRLError) -> int:
    """Return the HTTP status for an error."""
    return next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)


def as_json(value: Any, status: int = 200) -> Response:
    """Return a response with JSON values."""
    return Response(
        json.dumps(_sendable(value), ensure_ascii=False, separators=(",", ":")).encode(),
        status_code=status,
        media_type="application/json",
    )


def _sendable(value: Any) -> Any:
    """Make a value valid JSON for a page: escape control characters, convert NaN to a string."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {printable(str(key)): _sendable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sendable(item) for item in value]
    return printable(value) if isinstance(value, str) else value
