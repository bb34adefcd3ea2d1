"""The gate that every request passes first: it finds the name that the request was sent to, and its
owner, and turns errors into answers."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from aiohttp import web
from quicksand import QuicksandError

from quicksand_e2b.asked import TIMEOUT_S
from quicksand_e2b.bodies import TOO_LARGE
from quicksand_e2b.errors import ApiError, RpcError, api_error, not_running
from quicksand_e2b.keys import Keys
from quicksand_e2b.live import Live
from quicksand_e2b.records import State
from quicksand_e2b.sandboxes import Sandboxes
from quicksand_e2b.tasks import words_of

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

AGENT_PORT = 49983
"""The port at which clients reach a sandbox's files and processes: us."""

LEFT = 499
"""The status noted for a request whose client has left."""

_HOST = re.compile(r"(?P<port>[0-9]{1,5})-(?P<id>[a-z0-9]{1,63})\.")
_OURS = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*localhost")


def hostname_of(host: str) -> str:
    """Returns the name in a Host header, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def is_ours(host: str, names: frozenset[str]) -> bool:
    """Whether a Host header is none that the page of a stranger can have: an address, a name below
    "localhost", or one of ``names``. A stranger's name may be made to lead to this machine (DNS
    rebinding), and then its pages could ask here."""
    name = hostname_of(host)
    if name in names or _OURS.fullmatch(name):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


ToPort = Callable[[web.Request, str, int], Awaitable[web.StreamResponse]]


def middleware(names: frozenset[str], to_port: ToPort, tell: Callable[[str], None]) -> Any:
    """Refuses requests to names that are not ours, passes those for other ports of a guest to
    ``to_port``, and turns errors into answers."""

    @web.middleware
    async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_ours(request.headers.get("Host", ""), names):
            return answer_error(ApiError(421, "this server is not called so"))
        try:
            address = address_of(request)
            is_port = address is not None and address[1] != AGENT_PORT
            return await (to_port(request, *address) if address and is_port else handler(request))
        except RpcError as error:
            return web.json_response(error.body(), status=error.status)
        except (ApiError, QuicksandError, web.HTTPException) as error:
            return answer_error(_as_api_error(error))
        except ConnectionResetError:
            # The client has left, or is cut off. If this went on, aiohttp would write a traceback.
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=LEFT)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours ends one request only
            tell(f"{request.method} {request.path}: {words_of(error)}")
            return answer_error(ApiError(500, "a fault of the server; its stderr has more"))

    return gate


def _as_api_error(error: ApiError | QuicksandError | web.HTTPException) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QuicksandError):
        return api_error(error)
    return ApiError(error.status, _REASONS.get(error.status, error.reason))


_REASONS: Mapping[int, str] = {
    404: "there is no such route",
    405: "this route has no such method",
    413: TOO_LARGE,
}


def answer_error(error: ApiError) -> web.Response:
    return web.json_response(error.body(), status=error.status, headers=dict(error.headers))


def require_owner(request: web.Request, keys: Keys) -> str:
    """Returns the owner of a request's key. Raises ApiError (401)."""
    owner = keys.owner_of(request.headers.get("X-API-KEY", ""))
    if owner is None:
        raise ApiError(401, "the API key is missing or not valid: `quicksand-tui api env` shows it")
    return owner


def is_token(request: web.Request, live: Live) -> bool:
    """Whether a request has the token of a sandbox."""
    return is_same(request.headers.get("X-Access-Token", ""), live.record.token)


def is_same(one: str, other: str) -> bool:
    """Compares secrets in the same time wherever they differ."""
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode())


def address_of(request: web.Request) -> tuple[str, int] | None:
    """Returns the sandbox and the port of its guest that a request is for, by its headers or by its
    Host; None if it names none."""
    id_ = request.headers.get("E2b-Sandbox-Id", "")
    port = request.headers.get("E2b-Sandbox-Port", str(AGENT_PORT))
    if not id_:
        found = _HOST.match(request.headers.get("Host", "").lower())
        if found is None:
            return None
        id_, port = found["id"], found["port"]
    if not (port.isascii() and port.isdecimal()) or not 0 < int(port[:6]) < 65536:
        raise ApiError(400, f"{port!r:.20} is no port")
    return id_, int(port)


def by_token(request: web.Request, sandboxes: Sandboxes) -> Live | None:
    """Returns the sandbox whose token a request has; older clients name it in no other way."""
    if not request.headers.get("X-Access-Token"):
        return None
    for live in sandboxes:
        if live.is_listed and is_token(request, live):
            return live
    return None


async def require_running(live: Live | None, id_: str, sandboxes: Sandboxes) -> Live:
    """Returns the sandbox, if it runs. A paused one goes on if it was made so. Raises ApiError
    (502) with the words for a sandbox that is gone."""
    if live is None:
        raise not_running(id_)
    sandboxes.require_settled(live)
    if live.record.state is State.PAUSED and live.record.auto_resume:
        await whole(sandboxes, sandboxes.resume(live, TIMEOUT_S), f"api-resume-{live.id}")
    if live.record.state is not State.RUNNING or not live.is_up():
        raise not_running(id_)
    return live


async def whole(sandboxes: Sandboxes, work: Coroutine[Any, Any, T], name: str) -> T:
    """Does work to its end, even if the client leaves meanwhile. Raises what the work raises."""
    return await asyncio.shield(sandboxes.tasks.start(work, name))


def answer(
    value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.json_response(value, status=status, headers=headers, dumps=_dumps)


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
