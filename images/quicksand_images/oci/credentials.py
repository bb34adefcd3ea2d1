"""Tokens and passwords for registries (OCI distribution specification; Docker's "Token
Authentication"). Passwords come only from ``~/.docker/config.json``; programs that it names are not
run."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from quicksand.base.errors import HostError, ImageError, UnreachableError
from quicksand.base.files import read_json
from quicksand_wheels.links import shown
from quicksand_wheels.web import bound

from quicksand_images.oci.reference import DOCKER_API, DOCKER_HUB, Reference

ANSWER_MAX = 1024 * 1024
"""Bytes of an answer with a token."""

TOKEN_MAX = 64 * 1024
_PARAMETER = re.compile(r'([A-Za-z]+)="([^"]*)"')
_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", DOCKER_HUB, DOCKER_API)
"""The names under which Docker keeps the password for its own registry."""


class RegistryAuth(httpx.Auth):
    """Answers a registry's demand: with a token that it gives to anybody or for a password, or with
    the password itself. Only the registry's host gets them."""

    def __init__(self, reference: Reference, login: tuple[str, str] | None) -> None:
        """``login`` is a name and a password."""
        self._reference = reference
        self._login = login
        self._header = ""

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Ask for a token when the registry demands one (httpx calls this). Raises ImageError,
        UnreachableError."""
        if self._header:
            request.headers["Authorization"] = self._header
        answer = yield request
        if answer.status_code != httpx.codes.UNAUTHORIZED or not self._is_registry(answer.url):
            return
        kind, _, rest = answer.headers.get("www-authenticate", "")[:8192].partition(" ")
        asked = dict(_PARAMETER.findall(rest))
        if kind.lower() == "bearer" and "realm" in asked:
            token_answer = yield self._token_request(request, asked)
            self._header = f"Bearer {await _token_of(token_answer)}"
        elif kind.lower() == "basic" and self._login is not None:
            self._header = _basic(self._login)
        else:
            return
        request.headers["Authorization"] = self._header
        yield request

    def _is_registry(self, url: httpx.URL) -> bool:
        # Ports that a scheme implies are left out there.
        return url.netloc == httpx.URL(f"{url.scheme}://{self._reference.host}").netloc

    def _token_request(self, request: httpx.Request, asked: dict[str, str]) -> httpx.Request:
        try:
            urlsplit(asked["realm"]).port  # noqa: B018 - raises
            realm = httpx.URL(asked["realm"])
        except (httpx.InvalidURL, ValueError) as error:
            raise ImageError(
                f"{self._reference.registry} names {asked['realm'][:200]!r} for its tokens, "
                "which is no address"
            ) from error
        params = {"scope": f"repository:{self._reference.name}:pull"}
        if "service" in asked:
            params["service"] = asked["service"]
        headers = {"User-Agent": request.headers.get("User-Agent", "")}
        if self._login is not None:
            if not belongs_to(realm.raw_host.decode("ascii"), self._reference.host):
                raise ImageError(
                    f"{self._reference.registry} asks for its password to be sent to "
                    f"{shown(str(realm))}, which is another's"
                )
            headers["Authorization"] = _basic(self._login)
        return httpx.Request("GET", realm.copy_merge_params(params), headers=headers)


def belongs_to(host: str, registry: str) -> bool:
    """Whether a host may get the password of a registry: the registry itself, or one in the domain
    that the registry's own name lies in, as auth.docker.io for registry-1.docker.io."""
    own = urlsplit(f"//{registry}").hostname or ""
    _, _, domain = own.partition(".")
    in_domain = "." in domain and not domain.replace(".", "").isdigit()
    return host == own or (in_domain and (host == domain or host.endswith(f".{domain}")))


async def _token_of(answer: httpx.Response) -> str:
    if not answer.is_success:
        raise UnreachableError(
            f"{shown(str(answer.url))} gives no token: it answers with status {answer.status_code}"
        )
    bound(answer, ANSWER_MAX)
    try:
        found = json.loads(await answer.aread())
        token = found.get("token") or found["access_token"]
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise ImageError(f"{shown(str(answer.url))} answers with something else") from error
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise ImageError(f"{shown(str(answer.url))} answers with a token that is none")
    if len(token) > TOKEN_MAX:
        raise ImageError(f"{shown(str(answer.url))} answers with a token that is too long")
    return token


def _basic(login: tuple[str, str]) -> str:
    return "Basic " + base64.b64encode(":".join(login).encode()).decode("ascii")


def docker_config() -> Path:
    """Return the place of Docker's passwords."""
    own = os.environ.get("DOCKER_CONFIG", "")
    return (Path(own) if own else Path.home() / ".docker") / "config.json"


def find_login(registry: str, path: Path) -> tuple[str, str] | None:
    """Return the name and password for a registry in Docker's config; None if it has none, or keeps
    them elsewhere. Raises HostError for an unreadable config."""
    try:
        config = read_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HostError(f"{path} cannot be read: {error}") from error
    auths = config.get("auths")
    if not isinstance(auths, dict):
        return None
    keys = _HUB_KEYS if registry == DOCKER_HUB else (registry, f"https://{registry}")
    for key in keys:
        if isinstance(entry := auths.get(key), dict) and (found := _login_of(entry, path)):
            return found
    return None


def names_helper(registry: str, path: Path) -> bool:
    """Whether Docker's config leaves the password for a registry to a program."""
    try:
        config = read_json(path)
    except (OSError, ValueError):
        return False
    helpers = config.get("credHelpers")
    return bool(config.get("credsStore")) or (isinstance(helpers, dict) and registry in helpers)


def _login_of(entry: dict[str, Any], path: Path) -> tuple[str, str] | None:
    packed = entry.get("auth")
    if not packed:
        name, password = entry.get("username"), entry.get("password")
        return (name, password) if isinstance(name, str) and isinstance(password, str) else None
    try:
        name, colon, password = base64.b64decode(packed, validate=True).decode().partition(":")
    except (ValueError, TypeError) as error:
        raise HostError(f"a password in {path} is not as Docker writes it") from error
    return (name, password.rstrip("\0")) if colon else None
