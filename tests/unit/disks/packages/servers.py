"""A server of the tests' own: pages and wheels on 127.0.0.1, and what can go wrong with them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

JSON = "application/vnd.pypi.simple.v1+json"
PIECE = 65536


@dataclass
class Answer:
    """What is at one address."""

    body: bytes = b""
    kind: str = "application/octet-stream"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    """After how many bytes each answer breaks off, until there are none left."""
    has_length: bool = True
    takes_ranges: bool = True
    range_said: str = ""
    """What an answer to a request for a range says that it is, if not the truth."""
    drips: bool = False
    """Whether it sends a byte at a time, as long as somebody takes them."""
    gate: threading.Event | None = None
    """What the second half waits for."""


@dataclass
class Request:
    path: str
    headers: Mapping[str, str]
    sent: int = 0


class Server:
    """Answers by path; notes what it was asked."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.answers: dict[str, Answer] = {}
        self.requests: list[Request] = []
        self.waiting = threading.Event()
        """Whether an answer waits for its gate."""

    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def put(self, path: str, body: bytes | str | Path, **more: Any) -> str:
        """Put a file or a page somewhere; returns the address."""
        data = body.read_bytes() if isinstance(body, Path) else body
        data = data.encode() if isinstance(data, str) else data
        self.answers[path] = Answer(data, **more)
        return self.url + path

    def index(self, package: str, *wheels: Path, html: bool = False, **more: Any) -> str:
        """Put wheels and the page of a project into an index; returns the index's address.
        ``more`` are further fields of each file."""
        files = []
        for wheel in wheels:
            self.put(f"/files/{wheel.name}", wheel)
            files.append({**facts(wheel), "url": f"../../files/{wheel.name}", **more})
        if html:
            lines = (
                f'<a href="{file["url"]}#sha256={file["hashes"]["sha256"]}">{file["filename"]}</a>'
                for file in files
            )
            self.put(
                f"/simple/{package}/", "<!DOCTYPE html>" + "<br>".join(lines), kind="text/html"
            )
        else:
            about = {"meta": {"api-version": "1.1"}, "name": package, "files": files}
            self.put(f"/simple/{package}/", json.dumps(about), kind=JSON)
        return f"{self.url}/simple/"


def facts(wheel: Path) -> dict[str, Any]:
    data = wheel.read_bytes()
    hashes = {"sha256": hashlib.sha256(data).hexdigest()}
    return {"filename": wheel.name, "hashes": hashes, "size": len(data)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    known: Server

    def do_GET(self) -> None:
        answer = self.known.answers.get(self.path.partition("?")[0])
        request = Request(self.path, dict(self.headers))
        self.known.requests.append(request)
        answer = answer or Answer(b"there is no such thing", status=404)
        body, status = answer.body, answer.status
        asked = self.headers.get("Range")
        tag = f'"{hashlib.sha256(answer.body).hexdigest()}"'
        is_same = self.headers.get("If-Range") == tag
        if asked and answer.takes_ranges and status == 200 and is_same:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            body, status = body[start:], 206
        self.send_response(status)
        self.send_header("Content-Type", answer.kind)
        if status == 206:
            last = len(answer.body) - 1
            said = answer.range_said or f"bytes {start}-{last}/{len(answer.body)}"
            self.send_header("Content-Range", said)
        if answer.takes_ranges:
            self.send_header("ETag", tag)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.has_length:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        stop = answer.breaks.pop(0) if answer.breaks else len(body)
        self.close_connection = stop < len(body) or not answer.has_length
        self._send(request, answer, body[:stop])

    def _send(self, request: Request, answer: Answer, body: bytes) -> None:
        try:
            for at in range(len(body) if answer.drips else 0):
                self.wfile.write(body[at : at + 1])
                threading.Event().wait(0.005)
            for at in range(0, 0 if answer.drips else len(body), PIECE):
                if answer.gate is not None and at >= len(body) // 2:
                    self.known.waiting.set()
                    answer.gate.wait(30)
                self.wfile.write(body[at : at + PIECE])
                request.sent += len(body[at : at + PIECE])
        except OSError:
            self.close_connection = True  # the client went away

    def log_message(self, *_: object) -> None:
        """The tests look at `Server.requests`."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """Clients that go away are meant to."""


@contextmanager
def serving() -> Iterator[Server]:
    handler = type("Handler", (_Handler,), {})
    with _Http(("127.0.0.1", 0), handler) as http:
        server = Server(http.server_address[1])
        handler.known = server  # type: ignore[attr-defined]
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
