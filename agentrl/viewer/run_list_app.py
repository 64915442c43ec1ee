"""Web application for a folder of runs, with a list of the runs and the pages of each."""

import threading
from collections.abc import MutableMapping
from typing import Annotated, Any

from fastapi import FastAPI, Query, Response

from agentrl import replay
from agentrl.errors import AgentRLError, ConfigError
from agentrl.viewer.access_control import CHANGES, AccessGuard
from agentrl.viewer.metric_history import Axis
from agentrl.viewer.run_app import run_application
from agentrl.viewer.runs_folder import AllRuns
from agentrl.viewer.web_app_base import add_files, as_json, new_application, static_files

_PREFIX = "/runs"


def run_list_application(runs: AllRuns, guard: AccessGuard) -> FastAPI:
    """Create the ASGI application; the caller must call its `state.close`."""

    def message(error: AgentRLError) -> str:
        has_place = len(runs.folder.parts) > 1
        return str(error).replace(str(runs.folder), runs.folder.name) if has_place else str(error)

    app, files = new_application(guard, message), static_files()
    pages = _PagesOfRuns(runs, guard, app.state.closing, files["runs.html"])
    app.state.close = pages.close
    add_files(app, files, "runs.html", ("/",))
    app.mount(_PREFIX, pages)

    @app.get("/api/runs")
    def listing() -> Response:
        return as_json({"folder": runs.folder.absolute().name, "runs": runs.rows()})

    @app.get("/api/runs/curves")
    def curves(
        run: Annotated[list[str], Query()], metric: str | None = None, axis: Axis = "step"
    ) -> Response:
        return as_json(runs.curves(run, metric, axis))

    @app.post("/api/runs/archive", dependencies=CHANGES)
    def archive(run: str) -> Response:
        pages.drop(run)
        runs.archive(run)
        return as_json({})

    @app.post("/api/runs/delete", dependencies=CHANGES)
    def delete(run: str) -> Response:
        pages.drop(run)
        runs.delete(run)
        return as_json({})

    @app.post("/api/runs/rename", dependencies=CHANGES)
    def rename(run: str, name: str) -> Response:
        pages.drop(run)
        runs.rename(run, name)
        return as_json({})

    @app.post("/api/runs/tag", dependencies=CHANGES)
    def tag(run: str, tags: Annotated[list[str] | None, Query()] = None) -> Response:
        runs.tag(run, tags or [])
        return as_json({})

    return app


class _PagesOfRuns:
    """Applications of single runs, each created when `/runs/NAME/...` is first requested."""

    def __init__(
        self, runs: AllRuns, guard: AccessGuard, closing: threading.Event, listing: bytes
    ) -> None:
        self._runs, self._guard, self._closing, self._list = runs, guard, closing, listing
        self._apps: dict[str, FastAPI] = {}
        self._lock = threading.Lock()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Answer a request (ASGI)."""
        root = scope.get("root_path", "")
        found = self._runs.split(scope["path"].removeprefix(root).lstrip("/"))
        try:
            app = None if found is None else self._app(found[0])
        except ConfigError as error:
            await as_json({"error": str(error)}, 404)(scope, receive, send)
            return
        if found is None or app is None:
            # The page with the list of runs reports that the run does not exist.
            await Response(self._list, 404, media_type="text/html")(scope, receive, send)
            return
        await app({**scope, "root_path": f"{root}/{found[0]}"}, receive, send)

    def _app(self, name: str) -> FastAPI:
        with self._lock:
            if name not in self._apps:
                run = replay.open(self._runs.path(name), may_be_unplayed=True)
                self._apps[name] = run_application(run, self._guard)
                # Share the event, so that event streams of all runs end together.
                self._apps[name].state.closing = self._closing
            return self._apps[name]

    def drop(self, name: str) -> None:
        """Close the application of a run that is about to be moved or deleted."""
        with self._lock:
            if (app := self._apps.pop(name, None)) is not None:
                app.state.close()

    def close(self) -> None:
        """Close the applications of all runs."""
        for name in [*self._apps]:
            self.drop(name)
