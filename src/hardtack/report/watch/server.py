"""The server of `hardtack watch`: two addresses, for this machine alone.

It listens on the loopback address only. A web page elsewhere could still reach it through the browser of its user,
under a name of its own that it points at 127.0.0.1 (DNS rebinding): requests whose Host header is not this address are
refused, and so are those that other pages make.
"""

from __future__ import annotations

import base64
import hashlib
import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from hardtack import __version__
from hardtack.base.errors import UserError
from hardtack.report.page import report_style, scripts, templates
from hardtack.report.watch.watcher import Watcher

LOOPBACK = "127.0.0.1"
PORT = 8321  # where it is free, so that an open page finds the next server
SCRIPTS = ("base", "scales", "watch_chart", "watch")
_PATIENCE_S = 10.0  # with a client that says nothing


class WatchServer(ThreadingHTTPServer):
    """Serves the page at `address`. `port` None: the usual one, or any that is free."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, watcher: Watcher, port: int | None = None) -> None:
        self.watcher = watcher
        self.page, self.rules = _page(watcher)
        wanted = [PORT, 0] if port is None else [port]
        for number in wanted:
            try:
                super().__init__((LOOPBACK, number), _Handler)
                break
            except OSError as error:
                if number == wanted[-1]:
                    raise UserError(f"port {number} cannot be used ({error.strerror}); leave out --port") from None
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}

    def server_bind(self) -> None:
        """Without asking for the name of the address, as HTTPServer does: that may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no event."""


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    timeout = _PATIENCE_S
    server_version = "hardtack"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        if self.headers.get("Host", "").lower() not in self.server.hosts:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"this address is not that of hardtack watch\n", with_body)
        elif self.path == "/":
            self._send(HTTPStatus.OK, "text/html", self.server.page, with_body)
        elif self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"other pages may not read this\n", with_body)
        elif self.path == "/state":
            text = json.dumps(self.server.watcher.state(), allow_nan=False, separators=(",", ":"))
            self._send(HTTPStatus.OK, "application/json", text.encode("utf-8"), with_body)
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is only one page here: /\n", with_body)

    def _send(self, status: HTTPStatus, kind: str, body: bytes, with_body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Content-Security-Policy", self.server.rules)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:
        """Nothing: the terminal belongs to the user."""


def _page(watcher: Watcher) -> tuple[bytes, str]:
    """The page, and what it may do: run its own script and ask this server."""
    script = scripts(SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    rules = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; connect-src 'self'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    text = templates().get_template("watch.html").render(
        folders=[path.name or str(path) for path in watcher.paths], version=__version__,
        style=report_style(["study", "watch"]), script=script,
    )  # fmt: skip
    return text.encode("utf-8", "replace"), rules
