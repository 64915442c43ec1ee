"""Web application for one run: pages, JSON API and frames."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from importlib import resources
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.dependencies.utils import get_flat_dependant
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute

from agentrl.errors import AgentRLError, ConfigError, DeviceError
from agentrl.replay import Filter, Run, preference_pairs
from agentrl.replay.episode_query import parse_query
from agentrl.replay.live_phones import read_live_phones
from agentrl.runs.annotations import star, write_note
from agentrl.runs.metrics_file import METRICS_FILE
from agentrl.runs.run_paths import is_frame
from agentrl.runs.run_summary import job_stage, job_state
from agentrl.text import known_names, quoted
from agentrl.viewer import page_data
from agentrl.viewer.access_control import CHANGES, AccessGuard, TokenMissing, guard_requests
from agentrl.viewer.background_reading import BackgroundReading, StillReading
from agentrl.viewer.browser_play import BrowserPlay
from agentrl.viewer.episode_search import EpisodeSearch
from agentrl.viewer.metric_history import Axis
from agentrl.viewer.page_data import WIDTHS, FrameImages, webp
from agentrl.viewer.phone_wall import PhoneWall
from agentrl.viewer.run_highlights import LastScreens, highlights, log_files, log_tail
from agentrl.viewer.run_overview import MetricCurves, overview, rows_by_label
from agentrl.viewer.token_text import TokenVocabulary, turn_tokens

_CACHE_FOREVER = "private, max-age=31536000, immutable"
"""Cache header for the typeface, and for frames, whose ids are hashes of their pixels."""
_PAGES = (
    "/",
    "/episodes",
    "/episodes/{rest:path}",
    "/groups/{rest:path}",
    "/compare",
    "/logs",
    "/logs/{rest:path}",
    "/preferences",
    "/phones",
    "/play",
)
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
_WRITTEN_S = 2.0
"""Seconds a frame may be missing while a job runs."""
_POLL_S = 0.5
"""Seconds between the event stream's checks for changes."""
_MAX_ROWS = 500


def run_application(
    run: Run, guard: AccessGuard, stage: BrowserPlay | None = None, other: Run | None = None
) -> FastAPI:
    """Create the ASGI application; the caller must call its `state.close`.

    Args:
        run: the recorded run, which may still be growing.
        guard: decides which requests are answered.
        stage: an episode being played in the browser, if any.
        other: a run to compare with `run`, if any.
    """
    app = new_application(guard, lambda error: page_data.without_place(error, run))
    search, wall = EpisodeSearch(run), PhoneWall(run)

    def close() -> None:
        search.close()
        wall.close()

    app.state.close = close
    add_files(app, static_files())
    _add_frames(app, run)
    _add_views(app, run, other, search, is_playable=stage is not None)
    _add_wall(app, wall)
    if stage is not None:
        _add_stage(app, stage)

    @app.get("/api/news")
    async def news(request: Request) -> Response:
        return StreamingResponse(_news(request, run), media_type="text/event-stream")

    return app


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
        return as_json({"error": message(error)}, status_of(error))

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
    page_file: str = "page.html",
    pages: Sequence[str] = _PAGES,
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
        headers = {"Cache-Control": _CACHE_FOREVER} if kind == "woff2" else None
        return Response(files[path], media_type=_MEDIA_TYPES[kind], headers=headers)


def _add_frames(app: FastAPI, run: Run) -> None:
    pictures = FrameImages(run)

    def read(frame_id: str, width: int | None) -> bytes | None:
        return run.frame_bytes(frame_id) if width is None else pictures.small(frame_id, width)

    @app.get("/frames/{frame_id}")
    def frame(frame_id: str, width: int | None = None) -> Response:
        if not is_frame(frame_id) or width not in (None, *WIDTHS):
            return Response("no such frame\n", 404, media_type="text/plain")
        # A frame is written to disk shortly after the episode that shows it.
        end = time.monotonic() + _WRITTEN_S
        while (image := read(frame_id, width)) is None and time.monotonic() < end:
            if job_state(run.path) != "running":
                break
            time.sleep(_WRITTEN_S / 20)
        if image is None:
            return Response("this frame was not recorded\n", 404, media_type="text/plain")
        kind = "image/png" if width is None else "image/webp"
        return Response(image, media_type=kind, headers={"Cache-Control": _CACHE_FOREVER})


def _only_known(request: Request) -> None:
    """Refuse unknown query parameters, which FastAPI would silently ignore."""
    route: APIRoute = request.scope["route"]
    known = [field.alias for field in get_flat_dependant(route.dependant).query_params]
    for name in request.query_params:
        if name not in known:
            raise _UnknownParameter(
                f"unknown parameter {quoted(name)}"
                f"{known_names(name, known, label='Known parameters')}"
            )


def _add_views(
    app: FastAPI, run: Run, other: Run | None, search: EpisodeSearch, *, is_playable: bool
) -> None:
    runs = [run] if other is None else [run, other]
    readings = [BackgroundReading("episodes", one.episodes, one.share_read) for one in runs]

    def exists() -> None:
        if not run.path.is_dir():
            raise _RunGone(f"{run.path} was deleted, moved or archived")
        for reading in readings:
            reading.require()

    api = APIRouter(dependencies=[Depends(_only_known), Depends(exists)])
    _add_run_views(api, run, other, is_playable=is_playable)
    _add_list_view(api, run, search)
    _add_episode_views(api, run)
    _add_comparisons(api, run, other)
    app.include_router(api)


def _add_run_views(api: APIRouter, run: Run, other: Run | None, *, is_playable: bool) -> None:
    curves, screens = MetricCurves(run.path), LastScreens(run)
    history = curves.history
    metrics_reading = BackgroundReading("metrics", history.read, history.share)

    @api.get("/api/run/name")
    def name() -> Response:
        news = _state(run)
        found = {"phones": bool(read_live_phones(run.path)), "logs": bool(log_files(run))}
        return as_json(
            {"name": run.name, "plays": is_playable, "job": news[-1], "news": news} | found
        )

    @api.get("/api/run")
    def whole() -> Response:
        metrics_reading.require()
        beside = other and {"name": other.name, "plays": rows_by_label(other)}
        found = overview(run) | {"other": beside, "sections": curves.sections()}
        left = (found["steps"] or 0) - ((found["state"] or {}).get("step") or 0)
        is_running = found["job"] == "running" and left > 0
        return as_json(found | {"remaining_s": history.remaining_s(left) if is_running else None})

    @api.get("/api/curves")
    def charts(axis: Axis = "step") -> Response:
        metrics_reading.require()
        charts = [asdict(chart) for chart in curves.charts(axis)]
        return as_json({"charts": charts, "axes": history.axes()})

    @api.get("/api/metrics")
    def metrics(section: str | None = None, text: str = "", axis: Axis = "step") -> Response:
        metrics_reading.require()
        return as_json([asdict(chart) for chart in curves.all_of(section, text, axis)])

    @api.get("/api/highlights")
    def examples() -> Response:
        return as_json(highlights(run, screens))

    @api.get("/api/screens")
    def last_screens(id: Annotated[list[str], Query(max_length=_MAX_ROWS)]) -> Response:
        known = {one.id: one for one in run.episodes()}
        return as_json({one: screens.of(known[one]) for one in id if one in known})

    @api.get("/api/logs")
    def logs() -> Response:
        return as_json(log_files(run))

    @api.get("/api/logs/{name}")
    def log(name: str) -> Response:
        return as_json({"name": name, "text": log_tail(run, name)})


def _add_list_view(api: APIRouter, run: Run, search: EpisodeSearch) -> None:
    @api.get("/api/episodes")
    def listing(
        where: Annotated[Filter, Depends(_filter_of_query)],
        text: str | None = None,
        query: str | None = None,
        sort: str = "time",
        down: bool = True,
        first: Annotated[int, Query(ge=0)] = 0,
        count: Annotated[int, Query(ge=1, le=_MAX_ROWS)] = 100,
    ) -> Response:
        if sort not in page_data.SORTS:
            raise ConfigError(f"sort={sort!r}: must be one of {', '.join(page_data.SORTS)}")
        # Get the progress first, because episodes read in between may be missing from the result.
        progress = search.progress() if text else None
        asked = parse_query(query, run.episodes()) if query else None
        where = replace(where, among=search.find(text) if text else None, query=asked)
        page = page_data.listing(run, where, sort=sort, down=down, first=first, count=count)
        excerpts = search.excerpts(text, [row["id"] for row in page["rows"]]) if text else {}
        for row in page["rows"]:
            row["excerpt"] = excerpts.get(row["id"])
        return as_json(page | {"searched": progress})


def _add_episode_views(api: APIRouter, run: Run) -> None:
    vocabulary = TokenVocabulary(run.path)

    @api.get("/api/episodes/{episode_id}")
    def episode(episode_id: str) -> Response:
        recorded = run.episode(episode_id)
        beside = page_data.neighbors(run, recorded.summary)
        return as_json(page_data.episode(recorded) | {"neighbors": beside})

    @api.get("/api/episodes/{episode_id}/row")
    def row(episode_id: str) -> Response:
        return as_json(page_data.row(run.find(episode_id)))

    @api.get("/api/episodes/{episode_id}/turns/{number}")
    def tokens(episode_id: str, number: int) -> Response:
        episode = run.episode(episode_id).episode
        advantages = run.token_advantages(episode)
        return as_json(turn_tokens(episode, number, vocabulary, advantages))

    @api.post("/api/episodes/{episode_id}/star", dependencies=CHANGES)
    def mark(episode_id: str, starred: bool) -> Response:
        star(run.path, run.find(episode_id), starred=starred)
        return as_json({})

    @api.post("/api/episodes/{episode_id}/note", dependencies=CHANGES)
    def note(episode_id: str, note: str, seen: str) -> Response:
        write_note(run.path, run.find(episode_id), note, seen=seen)
        return as_json({})

    @api.get("/api/groups/{name}")
    def group(name: str) -> Response:
        page = page_data.group(run, name)
        if not page["members"]:
            raise ConfigError(f"{run.path} has no group {name!r}")
        return as_json(page)


def _add_comparisons(api: APIRouter, run: Run, other: Run | None) -> None:
    @api.get("/api/compare")
    def compare(
        a: str, a_step: int, b: str, b_step: int, a_other: bool = False, b_other: bool = False
    ) -> Response:
        if (a_other or b_other) and other is None:
            raise ConfigError("no second run is open; open one with agentrl view RUN --with OTHER")
        run_a, run_b = (other if is_other and other else run for is_other in (a_other, b_other))
        return as_json(page_data.comparison((run_a, a, a_step), (run_b, b, b_step)))

    @api.get("/api/choices")
    def pair() -> Response:
        pairs, done = preference_pairs.open_choices(run)
        # Leave out pairs with a damaged episode.
        whole = (opened for both in pairs if len(opened := list(run.opened(both))) == 2)
        shown = next(([page_data.episode(one) for one in both] for both in whole), None)
        return as_json({"pair": shown, "left": len(pairs), "done": done})

    @api.post("/api/choices", dependencies=CHANGES)
    def choose(better: str, worse: str, skipped: bool = False) -> Response:
        preference_pairs.choose(run, better, worse, skipped=skipped)
        return as_json({})


def _filter_of_query(
    split: str | None = None,
    label: str | None = None,
    outcome: str | None = None,
    cause: str | None = None,
    step: int | None = None,
    seed: int | None = None,
    group: str | None = None,
    device: str | None = None,
    success: bool | None = None,
    starred: bool | None = None,
    min_reward: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    max_reward: Annotated[float | None, Query(allow_inf_nan=False)] = None,
) -> Filter:
    """Return a request's filter; the query parameters have the names of the filter's fields."""
    return Filter(**locals())


def _add_wall(app: FastAPI, wall: PhoneWall) -> None:
    @app.get("/api/phones")
    def phones() -> Response:
        return as_json(wall.phones())

    @app.get("/api/phones/{name}/screen")
    def screen(name: str) -> Response:
        shown = webp(wall.screen(name), WIDTHS[-1])
        return Response(shown, media_type="image/webp", headers={"Cache-Control": "no-store"})

    @app.post("/api/phones/{name}/tap", dependencies=CHANGES)
    def tap(name: str, x: float, y: float) -> Response:
        wall.tap(name, x, y)
        return as_json({})


def _add_stage(app: FastAPI, stage: BrowserPlay) -> None:
    @app.get("/api/play")
    def now() -> Response:
        return as_json(stage.now())

    @app.get("/api/play/pictures/{number}")
    def picture(number: int) -> Response:
        shown = stage.picture(number)
        return Response(shown, media_type="image/png", headers={"Cache-Control": "no-store"})

    @app.post("/api/play/answer", dependencies=CHANGES)
    def answer(text: str | None = None) -> Response:
        stage.answer(text)
        return as_json({})

    @app.post("/api/play/undo", dependencies=CHANGES)
    def undo() -> Response:
        stage.undo()
        return as_json({})

    @app.post("/api/play/game", dependencies=CHANGES)
    def game(seed: int) -> Response:
        stage.start_game(seed)
        return as_json({})


class _UnknownParameter(AgentRLError):
    """A query parameter does not exist."""


class _RunGone(AgentRLError):
    """The run's folder no longer exists."""


_STATUS = {
    TokenMissing: 403,
    _UnknownParameter: 422,
    _RunGone: 410,
    ConfigError: 404,
    DeviceError: 503,
}
"""HTTP status by error; a phone may go offline during use."""


def status_of(error: AgentRLError) -> int:
    """Return the HTTP status for an error."""
    return next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)


async def _news(request: Request, run: Run) -> AsyncIterator[str]:
    """Send an event when something is recorded or logged, or the job's state or stage changes."""
    sent: tuple[Any, ...] = ()
    closing: threading.Event = request.app.state.closing
    while not closing.is_set() and not await request.is_disconnected():
        try:
            now = await asyncio.to_thread(_state, run)
        # The page then reloads its data and shows the error.
        except AgentRLError as error:
            now = page_data.without_place(error, run), None
        if now != sent:
            sent = now
            yield f"data: {json.dumps({'news': now, 'job': now[-1]})}\n\n"
        await asyncio.sleep(_POLL_S)


def _state(run: Run) -> tuple[Any, ...]:
    metrics = run.path / METRICS_FILE
    size = metrics.stat().st_size if metrics.is_file() else 0
    return (run.version(), size, job_stage(run.path), job_state(run.path))


def as_json(value: Any, status: int = 200) -> Response:
    """Return a response with JSON values."""
    return Response(
        json.dumps(page_data.sendable(value), ensure_ascii=False, separators=(",", ":")).encode(),
        status_code=status,
        media_type="application/json",
    )
