"""Features that E2B has and this server has not: clients are told so, and what there is instead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from quicksand_e2b.errors import ApiError

if TYPE_CHECKING:
    from aiohttp import web

    Route = Callable[[web.Request, str], Awaitable[web.StreamResponse]]

_BUILD = "building templates (`quicksand-tui images build` makes an image, which is one)"
_VOLUMES = "volumes (a snapshot keeps a sandbox's files; `files` carries them to another)"
_SECRETS = "secrets that are put into requests on their way (envs hands them to a sandbox)"
_MCP = "mcp: there is no mcp-gateway in its images; run a server in the sandbox, on a port"

TEMPLATES: Mapping[str, str] = {
    "mcp-gateway": _MCP,
    "desktop": "the template of e2b-desktop, which runs Xvfb, x11vnc and noVNC in the guest; its "
    "own desktops, such as the image debian-desktop, are for Desktop of its Python API",
}
"""Templates that clients' libraries name by themselves, unless there is an image called so."""

FIELDS: Mapping[str, str] = {
    "iam": "iam",
    "volumeMounts": _VOLUMES,
    "mcp": _MCP,
}
"""Fields of a request for a sandbox."""


def not_here(what: str) -> ApiError:
    return ApiError(501, f"quicksand-tui does not implement {what}")


def routes() -> list[tuple[str, str, Route]]:
    """Returns the routes that refuse, for requests with a key."""
    table = [(method, path, _BUILD) for method, path in _BUILDING]
    for what, path in ((_VOLUMES, "/volumes"), (_SECRETS, "/secrets")):
        table += [("*", path, what), ("*", f"{path}/{{rest:.*}}", what)]
    return [(method, path, _refusing(what)) for method, path, what in table]


_BUILDING = (
    ("POST", "/templates"),
    ("POST", "/v2/templates"),
    ("POST", "/v3/templates"),
    ("*", "/templates/tags"),
    ("*", "/templates/{id}/tags"),
    ("*", "/templates/{id}/tags/{rest:.*}"),
    ("*", "/templates/{id}/files/{rest:.*}"),
    ("*", "/templates/{id}/builds/{rest:.*}"),
    ("*", "/v2/templates/{id}/builds/{rest:.*}"),
)


def _refusing(what: str) -> Route:
    async def refuse(request: web.Request, owner: str) -> web.StreamResponse:
        raise not_here(what)

    return refuse
