"""Web application for one run: pages, JSON API and frames."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse

from agentrl.errors import AgentRLError, ConfigError
from agentrl.replay import Filter, Run, human_preferences
from agentrl.replay.episode_query import parse_query
from agentrl.replay.live_phone_states import read_live_phones
from agentrl.runs.annotations import star, write_note
from agentrl.runs.job_state import job_stage, job_state
from agentrl.runs.metrics_file import METRICS_FILE
from agentrl.runs.run_paths import is_frame
from agentrl.viewer.access_control import CHANGES, AccessGuard
from agentrl.viewer.background_reading import BackgroundReading
from agentrl.viewer.browser_play import BrowserPlay
from agentrl.viewer.episodes import page_data
from agentrl.viewer.episodes.episode_search import EpisodeSearch
from agentrl.viewer.episodes.frame_images import WIDTHS, FrameImages, webp
from agentrl.viewer.episodes.token_text import TokenVocabulary, turn_tokens
from agentrl.viewer.metric_charts import MetricCurves
from agentrl.viewer.metric_history import Axis
from agentrl.viewer.phone_wall import PhoneWall
from agentrl.viewer.run_highlights import LastScreens, highlights
from agentrl.viewer.run_logs import log_files, log_tail
from agentrl.viewer.run_overview import overview, rows_by_label
from agentrl.viewer.web_app_base import (
    CACHE_FOREVER,
    RunGone,
    add_files,
    as_json,
    new_application,
    only_known_parameters,
    static_files,
)

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
    add_files(app, static_files(), "page.html", _PAGES)
    _add_frames(app, run)
    _add_views(app, run, other, search, is_playable=stage is not None)
    _add_wall(app, wall)
    if stage is not None:
        _add_stage(app, stage)

    @app.get("/api/news")
    async def news(request: Request) -> Response:
        return StreamingResponse(_news(request, run), media_type="text/event-stream")

    return app


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
        return Response(image, media_type=kind, headers={"Cache-Control": CACHE_FOREVER})


def _add_views(
    app: FastAPI, run: Run, other: Run | None, search: EpisodeSearch, *, is_playable: bool
) -> None:
    runs = [run] if other is None else [run, other]
    readings = [BackgroundReading("episodes", one.episodes, one.share_read) for one in runs]

    def exists() -> None:
        if not run.path.is_dir():
            raise RunGone(f"{run.path} was deleted, moved or archived")
        for reading in readings:
            reading.require()

    api = APIRouter(dependencies=[Depends(only_known_parameters), Depends(exists)])
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
        pairs, done = human_preferences.open_choices(run)
        # Leave out pairs with a damaged episode.
        whole = (opened for both in pairs if len(opened := list(run.opened(both))) == 2)
        shown = next(([page_data.episode(one) for one in both] for both in whole), None)
        return as_json({"pair": shown, "left": len(pairs), "done": done})

    @api.post("/api/choices", dependencies=CHANGES)
    def choose(better: str, worse: str, skipped: bool = False) -> Response:
        human_preferences.choose(run, better, worse, skipped=skipped)
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
