"""The routes: cells, contexts, and the requests of the API's server."""

from __future__ import annotations

import asyncio
from typing import Any

from quicksand_interpreter.contexts import PYTHON, Contexts
from quicksand_interpreter.server import Answer, RefusedError, Request

VARIABLES_MAX = 256
"""Variables of a request."""


class Service:
    """Answers requests."""

    def __init__(self, contexts: Contexts, ready: asyncio.Task[None]) -> None:
        """``ready`` ends when the first kernel runs."""
        self._contexts = contexts
        self._ready = ready

    async def handle(self, request: Request) -> Answer:
        """Answer a request. Raises RefusedError, and the errors of the first kernel's start."""
        match (request.method, *request.path.strip("/").split("/")):
            case ("POST", "execute"):
                return self._execute(request.values())
            case ("GET", "contexts"):
                return self._contexts.list()
            case ("POST", "contexts"):
                return await self._create(request.values())
            case ("POST", "contexts", id_, "restart"):
                await self._contexts.restart(self._contexts.require(id_))
            case ("DELETE", "contexts", id_):
                await self._contexts.remove(self._contexts.require(id_))
            case ("PUT", "variables"):
                self._contexts.variables = _variables(request.values())
            case ("GET", "health"):
                await asyncio.shield(self._ready)
            case _:
                raise RefusedError(404, f"there is no route {request.method} {request.path:.200}")

        return None

    async def _create(self, values: dict[str, Any]) -> Answer:
        language = _text(values, "language") or PYTHON
        return (await self._contexts.create(language, _text(values, "cwd"))).told()

    def _execute(self, values: dict[str, Any]) -> Answer:
        code = values.get("code")
        if not isinstance(code, str):
            raise RefusedError(400, "code: it is a text")
        id_, language = _text(values, "context_id"), _text(values, "language")
        if id_ and language:
            raise RefusedError(400, "context_id and language do not go together")
        if id_ and id_ != "default":
            context = self._contexts.require(id_)
        else:
            context = self._contexts.usual(language or PYTHON)
        variables = _variables(values.get("env_vars") or {})
        return self._contexts.execute(context, code, variables)


def _text(values: dict[str, Any], name: str) -> str:
    found = values.get(name)
    if found is None:
        return ""
    if not isinstance(found, str) or "\0" in found:
        raise RefusedError(400, f"{name}: it is a text")
    return found


def _variables(found: object) -> dict[str, str]:
    if not isinstance(found, dict) or len(found) > VARIABLES_MAX:
        raise RefusedError(400, f"variables are an object of at most {VARIABLES_MAX} texts")
    for name, value in found.items():
        if not isinstance(value, str) or "\0" in name + value or not name or "=" in name:
            raise RefusedError(400, f"variables: {name!r:.80} has no name or no text as its value")
    return found
