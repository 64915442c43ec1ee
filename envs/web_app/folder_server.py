"""Serves a folder to the browser of one phone."""

import threading
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

_HTML = (".html", ".htm")
_DEADLINE_S = 10.0


class FolderServer(ThreadingHTTPServer):
    """Serves files of a folder on this computer's loopback interface until it is closed.

    Args:
        root: the folder.
    """

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(root)))
        self.head = ""
        """HTML that is inserted into each page, such as a `<meta name="viewport">`."""
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()
        self._thread.join(_DEADLINE_S)


class _Handler(SimpleHTTPRequestHandler):
    server: FolderServer
    timeout = _DEADLINE_S

    def send_head(self) -> BytesIO | BinaryIO | None:
        """Answer with the file; a page gets the server's head, after its document type."""
        path = Path(self.translate_path(self.path))
        if not self.server.head or path.suffix not in _HTML or not path.is_file():
            return super().send_head()
        page = path.read_bytes()
        # In front of the document type it would switch the page to quirks mode.
        start = page.lower().find(b"<!doctype")
        cut = page.find(b">", start) + 1 if 0 <= start < 1024 else 0
        page = page[:cut] + self.server.head.encode() + page[cut:]
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        return BytesIO(page)

    def end_headers(self) -> None:
        """Disable caching, because files may change between episodes."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def list_directory(self, path: Any) -> None:
        """Refuse to list a folder."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
