"""Fetches pages and wheels by HTTP: bounded, over TLS unless from this host, and compared with the
given digests before they are read."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from quicksand_wheels.errors import CertificatesError, NoAnswerError, RefusedError
from quicksand_wheels.files import create, in_thread, size_text
from quicksand_wheels.links import Link, is_allowed, next_of, shown

PAGE_MAX = 32 * 1024 * 1024
"""The most bytes of a page: the public index has an unused one of 40 MB with all projects."""

REFUSAL_MAX = 256 * 1024
"""Bytes of the text that comes with a redirection or an error."""

WHEEL_MAX = 64 * 1024**3
SPACE_EVERY = 64 * 1024 * 1024
"""Bytes after which the free space is checked again: the length may be unknown."""

TIMEOUT_S = 30.0
"""Seconds to wait for a connection, and for each next piece."""

SLOW_S, SLOW_BYTES = 60.0, 16 * 1024
"""A server that sends fewer bytes than these in so many seconds counts as a broken connection."""

TRIES = 5
"""The most attempts in a row to resume a download without receiving anything."""

PAUSE_S = 0.25
"""Seconds before the first of these attempts, doubled before each next one."""

AGENT = "quicksand"
CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""Variables that name certificates of a network's own authority."""

NOT_HERE = (404, 410)

AS_IT_IS = {"Accept-Encoding": "identity"}
"""Asks for an answer that is not compressed: one compressed piece could expand to any size."""

_BROKEN = (httpx.TransportError, httpx.StreamError)
"""The errors of a connection that breaks, or cannot be made."""


Progress = Callable[[int, int], None]
"""Called with the bytes that have come, and how many will, or 0 if nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An answer."""

    url: str
    """The address from which it finally came."""
    kind: str
    """Its media type."""
    body: bytes
    following: str
    """The address of the next page, or ""."""


class StalledError(httpx.ReadError):
    """Raised when a server sends next to nothing."""


class _Pace:
    """Raises StalledError if pieces come too slowly."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._bytes = 0

    def note(self, piece: bytes) -> None:
        self._bytes += len(piece)
        now = time.monotonic()
        if self._bytes >= SLOW_BYTES:
            self._since, self._bytes = now, 0
        elif now - self._since > SLOW_S:
            raise StalledError(f"it sends too slowly, {self._bytes} bytes in {SLOW_S:g} s")


class Web:
    """Connections to sources; a context manager."""

    def __init__(
        self,
        *,
        certificates: Sequence[str] = (),
        pause: float = PAUSE_S,
        auth: httpx.Auth | None = None,
        may_ask: Callable[[str], bool] = is_allowed,
    ) -> None:
        """``certificates`` are files with further authorities; ``may_ask`` tells for each address
        whether it may be fetched. Raises CertificatesError for a file that cannot be read."""
        self._pause = pause
        self._client = httpx.AsyncClient(
            verify=_tls([*certificates, *filter(None, map(os.environ.get, CERTIFICATES))]),
            follow_redirects=True,
            timeout=TIMEOUT_S,
            auth=auth,
            headers={"User-Agent": AGENT},
            # It is called for the addresses of redirections, too.
            event_hooks={"request": [_checker(may_ask)], "response": [_bound_refusal]},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def page(self, url: str, accept: str) -> Page | None:
        """Fetch a page; None if there is none at that address. Raises NoAnswerError, RefusedError
        for one that is too large or that leads to an address that is not allowed."""
        headers = {"Accept": accept, **AS_IT_IS}
        async with self._asking(url), self._get(url, headers) as answer:
            if answer.status_code in NOT_HERE:
                return None
            _require_success(answer, url)
            _require_plain(answer, url)
            body, pace = bytearray(), _Pace()
            async for piece in answer.aiter_raw():
                pace.note(piece)
                body += piece
                if len(body) > PAGE_MAX:
                    raise RefusedError(f"{shown(url)} has more than {size_text(PAGE_MAX)}")
            return Page(
                url=str(answer.url),
                kind=answer.headers.get("content-type", "").partition(";")[0].strip().lower(),
                body=bytes(body),
                following=next_of(list(answer.links.values()), url),
            )

    async def download(
        self,
        link: Link,
        target: Path,
        progress: Progress | None = None,
        *,
        most: int | None = None,
    ) -> str:
        """Fetch a wheel, or another file, of at most ``most`` bytes (by default, of a wheel) to
        ``target``, which must not exist, and return its SHA-256. A broken connection is resumed
        where it broke, if the server can do that.

        Raises RefusedError if the file is too large, or if its size or digest differs from the
        source's, NoAnswerError, OSError if it cannot be written.
        """
        most = WHEEL_MAX if most is None else most
        wheel = _Incoming(link, target, progress, most, self.check_space)
        try:
            async with self._asking(link.url):
                await self._get_all(link, wheel)
        finally:
            await in_thread(wheel.close)
        return wheel.finished()

    def check_space(self, directory: Path, need: int) -> None:
        """Called before ``need`` more bytes are written into a directory, and now and then with 0
        while it is not known how many come. A subclass may raise to end the download."""

    async def _get_all(self, link: Link, wheel: _Incoming) -> None:
        failures = 0
        while True:
            before = wheel.done
            try:
                await self._get_rest(link, wheel)
                return
            except _BROKEN as error:
                brings = wheel.done > before and not isinstance(error, StalledError)
                failures = 1 if brings else failures + 1
                if failures >= TRIES:
                    raise _unreachable(link.url, error) from error
                await asyncio.sleep(self._pause * 2**failures)

    async def _get_rest(self, link: Link, wheel: _Incoming) -> None:
        headers = dict(AS_IT_IS)  # digests are those of the file as it is
        if wheel.done and wheel.tag:
            headers |= {"Range": f"bytes={wheel.done}-", "If-Range": wheel.tag}
        async with self._get(link.url, headers) as answer:
            _require_success(answer, link.url)
            await in_thread(lambda: wheel.begin(answer))
            pace = _Pace()
            # Pieces as they come: bytes that wait for a larger piece would be lost on a break.
            async for piece in answer.aiter_raw():
                pace.note(piece)
                await in_thread(lambda piece=piece: wheel.add(piece))  # type: ignore[misc]
        if wheel.is_short:
            raise httpx.ReadError("the server ended before the file did")

    @contextlib.asynccontextmanager
    async def _get(self, url: str, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        """Send a request, and yield the answer once its head is there. Raises httpx.HTTPError, also
        for a head that takes longer than `SLOW_S`."""
        request = self._client.build_request("GET", url, headers=headers)
        try:
            async with asyncio.timeout(SLOW_S):
                answer = await self._client.send(request, stream=True)
        except TimeoutError:
            raise StalledError(f"it did not answer within {SLOW_S:g} s") from None
        try:
            yield answer
        finally:
            await answer.aclose()

    @contextlib.asynccontextmanager
    async def _asking(self, url: str) -> AsyncIterator[None]:
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise _unreachable(url, error) from error


class _Incoming:
    """A wheel that is being written."""

    def __init__(
        self,
        link: Link,
        target: Path,
        progress: Progress | None,
        most: int,
        check_space: Callable[[Path, int], None],
    ) -> None:
        self._link = link
        self._target = target
        self._report = progress or (lambda done, total: None)
        self._check_space = check_space
        self._file = create(target)
        self._digest = hashlib.sha256()
        self._most = most
        self._total: int | None = link.size
        self.done = 0
        self.tag = ""
        """The strong validator of the file on the server (RFC 9110); "" if it has none."""

    @property
    def is_short(self) -> bool:
        return self._total is not None and self.done < self._total

    def begin(self, answer: httpx.Response) -> None:
        """Take the head of an answer into account. Raises RefusedError, DiskSpaceError."""
        if answer.status_code != httpx.codes.PARTIAL_CONTENT:
            self._start_over()
        elif not answer.headers.get("content-range", "").startswith(f"bytes {self.done}-"):
            raise RefusedError(f"{shown(self._link.url)} was continued at another place than asked")
        tag = answer.headers.get("etag", "")
        self.tag = "" if tag.startswith("W/") else tag
        length = answer.headers.get("content-length", "")
        if length.isascii() and length.isdigit():
            self._total = self.done + int(length[:20])
        if self._total is not None:
            self._require(self._total)
        self._check_space(self._target.parent, (self._total or 0) - self.done)

    def _start_over(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._digest, self.done = hashlib.sha256(), 0

    def _require(self, total: int) -> None:
        said = self._link.size
        if said is not None and total != said:
            raise RefusedError(
                f"{self._link.file} has {total} bytes, and {self._link.source} says {said}"
            )
        if total > self._most:
            raise RefusedError(
                f"{self._link.file} has {size_text(total)}, more than {size_text(self._most)}"
            )

    def add(self, piece: bytes) -> None:
        """Write the next bytes. Raises RefusedError, OSError."""
        most = self._most if self._total is None else self._total
        if self.done + len(piece) > most:
            raise RefusedError(f"{self._link.file} has more than the {most} bytes that were said")
        if (self.done + len(piece)) // SPACE_EVERY > self.done // SPACE_EVERY:
            self._check_space(self._target.parent, 0)
        self._file.write(piece)
        self._digest.update(piece)
        self.done += len(piece)
        self._report(self.done, self._total or 0)

    def finished(self) -> str:
        """Return the digest of the whole file. Raises RefusedError if another one was given."""
        found = self._digest.hexdigest()
        if self._link.sha256 not in ("", found):
            raise RefusedError(
                f"{self._link.file} is refused: its SHA-256 is {found[:12]}…, and "
                f"{self._link.source} says {self._link.sha256[:12]}…",
                hint="try again; if it stays so, somebody has changed the file or the page",
            )
        return found

    def close(self) -> None:
        self._file.close()


def _checker(may_ask: Callable[[str], bool]) -> Callable[[httpx.Request], Awaitable[None]]:
    async def check_address(request: httpx.Request) -> None:
        url = str(request.url)
        if not may_ask(url):
            raise RefusedError(
                f"nothing is fetched from {shown(url)}: anybody on the way could change it",
                hint="use an address with https",
            )

    return check_address


class Bounded(httpx.AsyncByteStream):
    """The body of an unwanted answer, such as that of a redirection: httpx reads it whole. Raises
    RefusedError once it has more than ``most`` bytes."""

    def __init__(self, answer: httpx.Response, most: int) -> None:
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        self._stream = answer.stream
        self._url = str(answer.url)
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        done = 0
        async for piece in self._stream:
            done += len(piece)
            if done > self._most:
                raise RefusedError(f"{shown(self._url)} answers with more than was asked for")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def bound(answer: httpx.Response, most: int) -> None:
    """Bound the unread body of an answer to ``most`` bytes as received; its size when decompressed
    does not matter."""
    answer.stream = Bounded(answer, most)
    answer.headers.pop("content-encoding", None)


async def _bound_refusal(answer: httpx.Response) -> None:
    if not answer.is_success:
        bound(answer, REFUSAL_MAX)


def _require_success(answer: httpx.Response, url: str) -> None:
    if answer.is_success:
        return
    if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise httpx.ReadError(f"status {answer.status_code}")
    raise NoAnswerError(f"{shown(url)} answers with status {answer.status_code}")


def _require_plain(answer: httpx.Response, url: str) -> None:
    coding = answer.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise RefusedError(
            f"{shown(url)} answers with the encoding {coding[:40]!r}, which was not asked for"
        )


def _unreachable(url: str, error: Exception) -> NoAnswerError:
    broken = "no answer came in time" if isinstance(error, httpx.TimeoutException) else "it broke"
    why = str(error) or broken
    return NoAnswerError(f"{shown(url)} cannot be reached: {why}")


def _tls(files: Sequence[str]) -> ssl.SSLContext:
    places = ssl.get_default_verify_paths()
    has_own = places.cafile is not None or places.capath is not None
    # Python of python.org on macOS has none; then httpx uses those of the package certifi.
    context = ssl.create_default_context() if has_own else httpx.create_ssl_context()
    for file in files:
        try:
            context.load_verify_locations(file)
        except OSError as error:
            raise CertificatesError(
                f"the certificates in {file} cannot be read: {error.strerror}"
            ) from error
    return context
