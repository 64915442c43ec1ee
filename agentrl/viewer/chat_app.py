"""The web application of a chat with a model."""

import json
import threading
from typing import Any

from fastapi import FastAPI, Request, Response

from agentrl.errors import ConfigError
from agentrl.viewer.access import AccessGuard, check_token, guard_requests
from agentrl.viewer.live_chat import LiveChat
from agentrl.viewer.server_app import add_files, add_refusals, as_json, static_files

_MAX_BYTES = 64 << 20
"""Maximum size of a request with its images, in bytes."""


def chat_application(chat: LiveChat, guard: AccessGuard) -> FastAPI:
    """Create the ASGI application.

    Args:
        chat: the conversation.
        guard: decides which requests are answered.
    """
    app = FastAPI(title="agentrl", openapi_url=None)
    app.state.guard = guard
    app.state.closing = threading.Event()
    app.middleware("http")(guard_requests)
    add_files(app, static_files(), "chat.html", ("/",))
    add_refusals(app)

    @app.get("/api/chat")
    def now() -> Response:
        return as_json(chat.now())

    @app.get("/api/chat/pictures/{message}/{number}")
    def picture(message: int, number: int) -> Response:
        shown = chat.picture(message, number)
        return Response(shown, media_type="image/png", headers={"Cache-Control": "no-store"})

    @app.get("/api/chat/row")
    def row() -> Response:
        line = json.dumps(chat.row(), ensure_ascii=False) + "\n"
        name = {"Content-Disposition": 'attachment; filename="chat.jsonl"'}
        return Response(line.encode(), media_type="application/jsonl", headers=name)

    @app.post("/api/chat/message")
    async def message(request: Request) -> Response:
        check_token(guard, request)
        asked = await _body(request)
        chat.ask(asked.get("text"), asked.get("images"))
        return as_json({})

    @app.post("/api/chat/stop")
    def stop(request: Request) -> Response:
        check_token(guard, request)
        chat.stop()
        return as_json({})

    @app.post("/api/chat/reset")
    def reset(request: Request) -> Response:
        check_token(guard, request)
        chat.reset()
        return as_json({})

    return app


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a request.

    Raises:
        ConfigError: it is none, or too large.
    """
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > _MAX_BYTES:
            raise ConfigError(f"a message may have {_MAX_BYTES >> 20} MiB; send smaller images")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError("a request must be a JSON object")
    return found
