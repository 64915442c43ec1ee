"""Pages for tests of the browser, served on this machine."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VIEWPORT = "<meta name=viewport content='width=device-width'><body style='margin:0'>"
FRONT = f"""{VIEWPORT}<title>Front</title>
<button style='position:absolute;left:50px;top:80px;width:120px;height:60px'
  onclick="document.body.style.background='red'">go</button>
<input style='position:absolute;left:10px;top:200px' aria-label='name'
  onkeydown="this.dataset.keys = (this.dataset.keys ?? '') + event.key"
  oninput="document.title = `typed ${{this.value}} with ${{this.dataset.keys}}`">
<a href=/second style='position:absolute;left:10px;top:300px'>second</a>
<a target=_blank href=/second style='position:absolute;left:10px;top:350px'>another tab</a>
<input type=checkbox aria-label='agree' style='position:absolute;left:10px;top:400px'>
<div style='height:3000px'></div>"""
SECOND = f"""{VIEWPORT}<title>Second</title>
<script>document.title = `Second [${{document.cookie}}]`; document.cookie = 'seen=1'</script>"""
PAGES = {
    "/": FRONT,
    "/second": SECOND,
    "/wide": """<title>wide</title><body style='margin:0;width:980px;height:3000px'>
        <button style='position:absolute;left:700px;top:1100px;width:60px;height:60px'
        onclick="document.title = 'wide touched'">far</button>
        <script>scrollTo(0, 400)</script>""",
    "/alerts": f"{VIEWPORT}<script>while (true) alert('again')</script>",
    "/loop": f"{VIEWPORT}<body onclick='while (true);'>loop",
    "/memory": f"""{VIEWPORT}<body
        onclick="let all = []; while (true) all.push(Array(1e6).fill(all))">""",
    "/windows": f"""{VIEWPORT}<title>windows</title><script>
        setInterval(() => {{ window.open('/second'); document.title += '.'; }}, 50)</script>""",
    "/asks": f"""{VIEWPORT}<script>
        navigator.geolocation.getCurrentPosition(() => document.title = 'allowed',
            () => document.title = 'denied')</script>""",
    "/download": f"{VIEWPORT}<title>page</title><body onclick=\"location='/file'\">",
    "/leave": f"{VIEWPORT}<script>setTimeout(() => location = 'http://example.org/', 50)</script>",
    "/redirect": "",
    "/halves": f"{VIEWPORT}<script>document.title = 'half \\ud83d of a character'</script>",
    "/stay": f"""{VIEWPORT}<title>stay</title><script>
        addEventListener('beforeunload', event => event.preventDefault())</script>
        <a href=/second style='position:absolute;left:10px;top:300px'>leave</a>""",
    "/worker": f"""{VIEWPORT}<script>
        navigator.serviceWorker.register('/worker.js').then(
            found => document.title = found ? 'registered' : 'refused')</script>""",
    "/worker.js": "addEventListener('fetch', () => 0)",
    # What a page reaches: {here} is a port of this machine that the phone does not have.
    "/reach": f"""{VIEWPORT}<script>
        async function reach(what) {{
            try {{ await fetch(what, {{mode: 'no-cors'}}); return 'yes' }} catch {{ return 'no' }}
        }}
        const image = url => new Promise(done => {{
            const one = new Image(); one.onload = () => done('yes'); one.onerror = () => done('no');
            one.src = url }});
        const socket = url => new Promise(done => {{
            const one = new WebSocket(url); one.onopen = () => done('yes');
            one.onerror = () => done('no') }});
        (async () => document.title = [
            await reach('/second'), await reach('http://127.0.0.1:HERE/second'),
            await reach('http://[::1]:HERE/second'), await reach('http://example.org/'),
            await image('http://localhost:HERE/second'), await socket('ws://127.0.0.1:HERE/'),
            await reach('http://127.0.0.2:HERE/second'),
            await reach('http://127.0.0.3:HERE/second')].join(' '))()</script>""",
}


class PageServer(ThreadingHTTPServer):
    """Serves `PAGES` on all addresses of this machine's loopback, and lists what was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("0.0.0.0", 0), _Handler)
        self.asked: list[str] = []

    @property
    def pages(self) -> Mapping[str, str]:
        """The pages by path, with this server's port."""
        return {path: page.replace("HERE", str(self.server_port)) for path, page in PAGES.items()}


class _Handler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.headers['Host']}{self.path}")
        page = self.server.pages.get(self.path)
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "http://example.org/")
        else:
            self.send_response(404 if page is None and self.path != "/file" else 200)
        kind = "application/octet-stream" if self.path == "/file" else "text/html"
        if self.path.endswith(".js"):
            kind = "text/javascript"
        content = (page or "").encode()
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Be quiet."""


@contextlib.contextmanager
def serving_pages() -> Iterator[PageServer]:
    """Serve the pages until the block ends."""
    with PageServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
