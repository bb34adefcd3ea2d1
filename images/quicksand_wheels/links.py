"""The answers of sources of wheels: pages of an index (PEP 503, PEP 691), other pages with links,
and the releases of a forge. Pure; all of it is from elsewhere, and nonsense is left out."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

from quicksand_wheels.errors import RefusedError

LINKS_MAX = 100_000
SHOWN_MAX = 100
"""Characters of foreign text in an error."""

NAME_MAX = 255
"""Characters of a wheel's file name, as of any file's (NAME_MAX, linux/limits.h)."""

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{JSON_TYPE}, application/json;q=0.9, text/html;q=0.8"

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A wheel that a source offers."""

    file: str
    """Its file name."""
    url: str = ""
    path: Path | None = None
    """Its place on this host; None if it must be fetched from ``url``."""
    sha256: str = ""
    """Its digest; "" if the source gives none."""
    size: int | None = None
    """Bytes; None if the source does not say."""
    source: str = ""
    """The name of the source in messages."""
    is_yanked: bool = False


def parse_page(body: bytes, kind: str, url: str, source: str) -> list[Link]:
    """Return the wheels on a page of the media type ``kind`` at ``url``. Raises RefusedError for
    anything that is not such a page."""
    if "json" not in kind:
        return list(_from_html(body.decode("utf-8", "replace"), url, source))
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{shown(url)} is no JSON: {error}") from error
    if isinstance(value, list):
        return list(_from_releases(value[:LINKS_MAX], url, source))
    return list(_from_index(value, url, source))


def _from_index(value: Any, url: str, source: str) -> Iterator[Link]:
    meta = value.get("meta") if isinstance(value, dict) else None
    version = meta.get("api-version") if isinstance(meta, dict) else None
    if not isinstance(version, str) or version.partition(".")[0] != "1":
        raise RefusedError(f"{shown(url)} is no page of an index: its version is {version!r}")
    files = value.get("files")
    for found in files[:LINKS_MAX] if isinstance(files, list) else ():
        if not isinstance(found, dict):
            continue
        hashes = found.get("hashes")
        yield from _link(
            url,
            found.get("url"),
            source,
            sha256=hashes.get("sha256") if isinstance(hashes, dict) else None,
            size=found.get("size"),
            is_yanked=bool(found.get("yanked")),
        )


def _from_releases(value: list[Any], url: str, source: str) -> Iterator[Link]:
    for release in value:
        if not isinstance(release, dict) or release.get("draft"):
            continue
        assets = release.get("assets")
        for found in assets[:LINKS_MAX] if isinstance(assets, list) else ():
            if not isinstance(found, dict):
                continue
            digest = found.get("digest")
            yield from _link(
                url,
                found.get("browser_download_url"),
                source,
                sha256=digest.removeprefix("sha256:") if isinstance(digest, str) else None,
                size=found.get("size"),
            )


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.base = ""
        self.found: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        target = values.get("href")
        if tag == "base" and target and not self.base:
            self.base = target
        elif tag == "a" and target and len(self.found) < LINKS_MAX:
            self.found.append((target, "data-yanked" in values))


def _from_html(text: str, url: str, source: str) -> Iterator[Link]:
    anchors = _Anchors()
    anchors.feed(text)
    base = _join(url, anchors.base)
    for target, is_yanked in anchors.found:
        fragment = urldefrag(target).fragment
        digest = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
        yield from _link(base, target, source, sha256=digest, is_yanked=is_yanked)


def _link(
    base: str,
    target: object,
    source: str,
    *,
    sha256: object = None,
    size: object = None,
    is_yanked: bool = False,
) -> Iterator[Link]:
    """Yield the wheel at an address, if it is one."""
    if not isinstance(target, str):
        return
    url = urldefrag(_join(base, target)).url
    name = file_of(url)
    if not name.endswith(".whl") or len(name) > NAME_MAX or not is_allowed(url):
        return
    known = sha256.lower() if isinstance(sha256, str) else ""
    if known and not _SHA256.fullmatch(known):
        return  # a damaged digest must not turn the check off
    whole = size if type(size) is int and 0 < size < 2**63 else None
    yield Link(file=name, url=url, sha256=known, size=whole, source=source, is_yanked=is_yanked)


def _join(base: str, target: str) -> str:
    try:
        return urljoin(base, target)
    except ValueError:
        return ""


def file_of(url: str) -> str:
    """The file name at the end of an address; "" if there is none that can be one."""
    try:
        name = unquote(urlsplit(url).path.rpartition("/")[2])
    except ValueError:
        return ""
    return name if name.isprintable() and "/" not in name else ""


def is_allowed(url: str) -> bool:
    """Whether fetching from there is allowed: by https, or from this host."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        parts.port  # noqa: B018 - it raises for one that cannot be
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def shown(url: str) -> str:
    """An address without the name and password in it, for messages and records."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that is none"
    host = parts.netloc.rpartition("@")[2]
    text = urlunsplit((parts.scheme, host, parts.path, "", ""))
    return "".join(char if char.isprintable() else "?" for char in text)


def next_of(links: Iterable[dict[str, Any]], url: str) -> str:
    """Return the address of the next page, on the same host, from the links of an answer's head; ""
    if there is none."""
    for found in links:
        target = found.get("url")
        if found.get("rel") == "next" and isinstance(target, str):
            following = _join(url, target)
            same = urlsplit(following).netloc == urlsplit(url).netloc
            return following if same and is_allowed(following) else ""
    return ""
