"""Fetching from a registry: a small one of the test's own, over HTTP on this host."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import (
    ConfigError,
    HostError,
    ImageError,
    ImageNotFound,
    QuicksandError,
    UnreachableError,
)
from quicksand_images.oci.credentials import RegistryAuth, belongs_to, find_login
from quicksand_images.oci.places import open_place
from quicksand_images.oci.reference import parse_reference
from quicksand_images.oci.registry import fetch
from quicksand_images.oci.source import find_image

from tests.container_images import INDEX, MANIFEST, Image, directory, file, sha256, tar
from tests.each import each

X86 = Architecture.X86_64
TOKEN = "a-token"
Answer = tuple[int, dict[str, str], bytes]


class Registry:
    """A registry with one repository, "me/app". What ``change`` returns for a path is answered
    instead; connections break after ``breaks`` bytes of a layer, as often as that is set."""

    def __init__(self) -> None:
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.change: Callable[[str], Answer | None] = lambda path: None
        self.login: tuple[str, str] | None = None
        self.needs_token = True
        self.realm = ""
        self.breaks: list[int] = []
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        serve = self.server.serve_forever
        threading.Thread(target=serve, args=(0.01,), daemon=True).start()

    def add(self, image: Image, tag: str = "latest") -> None:
        data = image.manifest_bytes()
        self.blobs |= image.blobs
        for name in (tag, f"sha256:{sha256(data)}"):
            self.manifests[name] = (MANIFEST, data)

    def add_index(self, *images: Image, tag: str = "latest") -> None:
        entries = []
        for image in images:
            self.add(image, f"only-{sha256(image.manifest_bytes())}")
            entries.append({**image.entry(), "platform": image.platform()})
        data = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
        for name in (tag, f"sha256:{sha256(data)}"):
            self.manifests[name] = (INDEX, data)

    def answer(self, path: str, headers: dict[str, str]) -> Answer:
        self.asked.append((path, headers))
        parts = urlsplit(path)
        if (changed := self.change(parts.path)) is not None:
            return changed
        given = headers.get("authorization", "")
        if parts.path == "/token":
            if self.login and given != basic(self.login):
                return 401, {}, b"{}"
            assert parse_qs(parts.query)["scope"] == ["repository:me/app:pull"]
            return 200, {}, json.dumps({"token": TOKEN}).encode()
        if self.needs_token and given != f"Bearer {TOKEN}":
            realm = self.realm or f"http://{self.host}/token"
            kind = f'Bearer realm="{realm}",service="registry",scope="x"'
            return 401, {"WWW-Authenticate": kind}, b"no"
        return self._content(parts.path, headers)

    def _content(self, path: str, headers: dict[str, str]) -> Answer:
        kind, _, name = path.removeprefix("/v2/me/app/").partition("/")
        if kind == "manifests" and name in self.manifests:
            media, data = self.manifests[name]
            return 200, {"Content-Type": media}, data
        data = self.blobs.get(name.removeprefix("sha256:"), b"")
        if kind != "blobs" or not data:
            return 404, {}, b"{}"
        if "range" in headers:
            start = int(headers["range"].removeprefix("bytes=").removesuffix("-"))
            place = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
            return 206, {**place, "ETag": '"x"'}, data[start:]
        return 200, {"ETag": '"x"'}, data

    def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, extra, body = registry.answer(self.path, headers)
                self.send_response(status)
                for name, value in extra.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if "/blobs/" in self.path and len(body) > 2000 and registry.breaks:
                    body = body[: registry.breaks.pop(0)]
                    self.close_connection = True
                with contextlib.suppress(ConnectionError):  # the client has read enough
                    self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        return Handler


def basic(login: tuple[str, str]) -> str:
    return "Basic " + base64.b64encode(":".join(login).encode()).decode()


@pytest.fixture
def server() -> Iterator[Registry]:
    found = Registry()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Docker's config, which does not exist yet."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    (tmp_path / "docker").mkdir()
    return tmp_path / "docker" / "config.json"


def image(arch: str = "amd64", **config: Any) -> Image:
    layer = tar(directory("etc"), file("etc/x", bytes(range(256)) * 400))
    return Image([layer, tar(file("y"))], packing="", arch=arch, **config)


async def get(server: Registry, target: Path, end: str = "", **more: Any) -> None:
    reference = parse_reference(f"{server.host}/me/app{end}")
    await fetch(reference, target, X86, plain_http=True, pause=0.001, **more)


async def test_an_image_is_fetched_and_found(server: Registry, tmp_path: Path) -> None:
    server.add_index(image("arm64"), image(Cmd=["sh"]))
    seen: list[tuple[str, int, int]] = []
    await get(server, tmp_path / "l", progress=lambda *what: seen.append(what))
    found = find_image(open_place(tmp_path / "l", tmp_path), X86)
    assert (found.config.cmd, len(found.layers)) == (("sh",), 2)
    assert all(stage == "downloading" and done <= total for stage, done, total in seen)
    tokens = [path for path, _ in server.asked if path.startswith("/token")]
    assert len(tokens) == 1


async def test_an_image_is_fetched_by_its_digest(server: Registry, tmp_path: Path) -> None:
    one = image()
    server.add(one)
    digest = f"sha256:{sha256(one.manifest_bytes())}"
    await get(server, tmp_path / "l", f":other@{digest}")
    assert find_image(open_place(tmp_path / "l", tmp_path), X86).layers
    server.manifests[digest] = (MANIFEST, image(Cmd=["evil"]).manifest_bytes())
    with pytest.raises(ImageError, match="were said"):
        await get(server, tmp_path / "m", f"@{digest}")


async def test_a_download_that_breaks_goes_on_where_it_broke(
    server: Registry, tmp_path: Path
) -> None:
    server.add(image())
    server.breaks = [30_000, 20_000, 100]
    await get(server, tmp_path / "l")
    ranges = [headers["range"] for _, headers in server.asked if "range" in headers]
    assert ranges == ["bytes=30000-", "bytes=50000-", "bytes=50100-"]
    assert find_image(open_place(tmp_path / "l", tmp_path), X86).layers


# --- passwords


def keep(config: Path, host: str, login: tuple[str, str], **more: Any) -> None:
    auth = basic(login).removeprefix("Basic ")
    config.write_text(json.dumps({"auths": {host: {"auth": auth}}, **more}))


async def test_a_password_from_dockers_config_is_used(
    server: Registry, tmp_path: Path, config: Path
) -> None:
    server.add(image())
    server.login = ("me", "secret:word")
    with pytest.raises(UnreachableError, match="gives no token"):
        await get(server, tmp_path / "l")
    keep(config, server.host, server.login)
    await get(server, tmp_path / "m")
    sent = [headers.get("authorization", "") for path, headers in server.asked if "/v2/" in path]
    assert basic(server.login) not in sent


async def test_a_registry_that_wants_the_password_itself_gets_it(
    server: Registry, tmp_path: Path, config: Path
) -> None:
    server.add(image())
    server.login, server.needs_token = ("me", "pw"), False
    plain = server.answer

    def answer(path: str, headers: dict[str, str]) -> Answer:
        if headers.get("authorization") != basic(("me", "pw")):
            return 401, {"WWW-Authenticate": 'Basic realm="x"'}, b""
        return plain(path, headers)

    server.answer = answer  # type: ignore[method-assign]
    with pytest.raises(UnreachableError, match="status 401"):
        await get(server, tmp_path / "l")
    keep(config, server.host, server.login)
    await get(server, tmp_path / "m")


@each("text", ["ghcr.io:443/me/app", "GHCR.io/me/app", "localhost:443/me/app"])
def test_a_registry_gets_its_login_however_it_is_written(text: str) -> None:
    reference = parse_reference(text)
    request = httpx.Request("GET", f"https://{reference.host}/v2/")
    flow = RegistryAuth(reference, ("me", "pw")).async_auth_flow(request)
    asked = {"WWW-Authenticate": 'Basic realm="x"'}

    async def answered() -> httpx.Request:
        await anext(flow)
        return await flow.asend(httpx.Response(401, headers=asked, request=request))

    assert asyncio.run(answered()).headers["authorization"] == basic(("me", "pw"))


@pytest.mark.parametrize(
    "realm", ["https://[x", "https://x:port/", "https://\x7f/", "https://x:99999"]
)
@pytest.mark.parametrize("login", [None, ("me", "pw")])
async def test_a_registry_that_names_no_address_for_tokens_is_refused(
    server: Registry,
    tmp_path: Path,
    config: Path,
    realm: str,
    login: tuple[str, str] | None,
) -> None:
    server.add(image())
    server.realm = realm
    if login:
        keep(config, server.host, login)
    with pytest.raises(ImageError, match="which is no address"):
        await get(server, tmp_path / "l")


async def test_a_password_is_not_sent_to_another_host(
    server: Registry, tmp_path: Path, config: Path
) -> None:
    server.add(image())
    keep(config, server.host, ("me", "pw"))
    other = Registry()
    try:
        server.realm = f"http://localhost:{other.server.server_address[1]}/token"
        with pytest.raises(ImageError, match="which is another's"):
            await get(server, tmp_path / "l")
        # Nor where a layer is redirected to, which is usual.
        server.realm = ""
        layer = image().packed[0]
        other.blobs[sha256(layer)] = layer
        other.needs_token = False
        target = f"http://localhost:{other.server.server_address[1]}/v2/me/app/blobs/sha256:"

        def elsewhere(path: str) -> Answer | None:
            digest = sha256(layer)
            return (307, {"Location": target + digest}, b"") if path.endswith(digest) else None

        server.change = elsewhere
        await get(server, tmp_path / "m")
        assert len(other.asked) == 1
        assert "authorization" not in other.asked[0][1]
    finally:
        other.server.shutdown()
        other.server.server_close()


async def test_no_program_is_run_for_a_password_and_that_is_said(
    server: Registry, tmp_path: Path, config: Path
) -> None:
    server.add(image())
    server.login = ("me", "pw")
    config.write_text(json.dumps({"credsStore": "touch /tmp/never", "auths": {server.host: {}}}))
    with pytest.raises(UnreachableError) as caught:
        await get(server, tmp_path / "l")
    assert "not run here" in str(caught.value.hint)


@each(
    ("host", "registry", "fits"),
    [
        ("auth.docker.io", "registry-1.docker.io", True),
        ("gitlab.com", "registry.gitlab.com", True),
        ("ghcr.io", "ghcr.io", True),
        ("evil.io", "ghcr.io", False),
        ("evil-docker.io", "registry-1.docker.io", False),
        ("docker.io.evil.com", "registry-1.docker.io", False),
        ("10.0.0.2", "10.0.0.1:5000", False),
        ("0.0.1", "10.0.0.1", False),
        ("other", "localhost:5000", False),
    ],
)
def test_a_password_goes_to_the_registrys_own_domain_only(
    host: str, registry: str, fits: bool
) -> None:
    assert belongs_to(host, registry) is fits


def test_dockers_config_is_read_as_docker_writes_it(config: Path) -> None:
    assert find_login("ghcr.io", config) is None
    keep(config, "https://index.docker.io/v1/", ("a", "b"))
    assert find_login("docker.io", config) == ("a", "b")
    assert find_login("ghcr.io", config) is None
    config.write_text(json.dumps({"auths": {"r.io": {"username": "u", "password": "p"}}}))
    assert find_login("r.io", config) == ("u", "p")
    for text in ("{", "[" * 100_000, '{"auths": {"r.io": {"auth": "%%"}}}'):
        config.write_text(text)
        with pytest.raises(HostError, match=str(config)):
            find_login("r.io", config)


# --- hostile and broken registries


async def test_another_host_is_never_asked_without_tls(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not on this host"):
        await fetch(parse_reference("r.example/x"), tmp_path / "l", X86, plain_http=True)


async def test_this_host_is_asked_without_tls_only_when_that_was_said(
    server: Registry, tmp_path: Path
) -> None:
    server.add(image())
    with pytest.raises(UnreachableError):
        await fetch(parse_reference(f"{server.host}/me/app"), tmp_path / "l", X86, pause=0)
    assert not server.asked


async def test_a_missing_image_is_said_to_be_missing(server: Registry, tmp_path: Path) -> None:
    with pytest.raises(ImageNotFound, match="has no image"):
        await get(server, tmp_path / "l")


@each(
    ("path", "answer", "why"),
    lambda: [
        ("manifests", (200, {"Content-Type": MANIFEST}, b"[" * 300_000), "no JSON"),
        ("manifests", (200, {"Content-Type": "text/html"}, b"<html>"), "no JSON"),
        ("manifests", (200, {}, b" " * (5 * 1024 * 1024)), "MiB|MB"),
        ("manifests", (307, {"Location": "http://example.com/x"}, b""), "anybody on the way"),
        ("manifests", (307, {"Location": "file:///etc/passwd"}, b""), "anybody|cannot be reached"),
        ("manifests", (307, {"Location": "https://127.0.0.1:99999/x"}, b""), "nothing is fetched"),
        ("manifests", (403, {}, b"x" * 10_000_000), "more than was asked for|status 403"),
        ("blobs", (404, {}, b""), "not in the registry"),
        ("blobs", (200, {}, b"other"), "were said"),
        ("token", (200, {}, b"{}"), "something else"),
        ("token", (200, {}, b'{"token": "a\\nb"}'), "token that is none"),
        ("token", (200, {}, b"[" * 900_000), "something else"),
        ("token", (200, {}, b" " * 2_000_000), "more than was asked for"),
        ("token", (403, {}, b""), "gives no token"),
    ],
)
async def test_malformed_answers_are_refused(
    server: Registry, tmp_path: Path, path: str, answer: Answer, why: str
) -> None:
    server.add(image())
    server.change = lambda asked: answer if f"/{path}" in asked else None
    with pytest.raises(QuicksandError, match=why):
        await get(server, tmp_path / "l")


async def test_a_layer_with_another_content_or_size_is_refused(
    server: Registry, tmp_path: Path
) -> None:
    one = image()
    server.add(one)
    digest = sha256(one.packed[0])
    for number, body in enumerate((one.packed[0][:-1] + b"!", one.packed[0] + b"!", b"short")):
        server.change = (
            lambda path, body=body: (200, {}, body) if path.endswith(digest) else None  # type: ignore[misc]
        )
        with pytest.raises((ImageError, UnreachableError), match=r"bytes|SHA-256"):
            await get(server, tmp_path / str(number))


async def test_an_image_for_another_machine_is_refused_before_its_layers_are_fetched(
    server: Registry, tmp_path: Path
) -> None:
    server.add(image("arm64"))
    with pytest.raises(ImageError, match="linux/arm64"):
        await get(server, tmp_path / "l")
    server.add_index(image("arm64"), image("s390x"))
    with pytest.raises(
        ImageError, match="no image for linux/amd64; it has linux/arm64, linux/s390x"
    ):
        await get(server, tmp_path / "m")
    layers = {sha256(layer) for layer in image().packed}
    assert not [path for path, _ in server.asked if path.rpartition(":")[2] in layers]


async def test_a_manifest_that_its_index_does_not_name_is_refused(
    server: Registry, tmp_path: Path
) -> None:
    one, evil = image(), image(Cmd=["evil"])
    server.add_index(one)
    server.manifests[f"sha256:{sha256(one.manifest_bytes())}"] = (MANIFEST, evil.manifest_bytes())
    with pytest.raises(ImageError, match="were said"):
        await get(server, tmp_path / "l")
