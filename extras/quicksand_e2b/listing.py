"""The description of a sandbox, the filters of a list, and its pages."""

from __future__ import annotations

import base64
import binascii
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from quicksand_e2b.errors import ApiError
from quicksand_e2b.fields import whole
from quicksand_e2b.records import SandboxRecord, SnapshotRecord, State

VERSION = "0.6.4"
"""The version of the guest's daemon that clients know: its promises are kept here. From 0.6.2 on it
would promise metadata of files."""

CLIENT = "quicksand"
ROUNDED_S = 1e-6
"""Seconds that a time may lose by being rounded when it is told."""

LIMIT = 100
LIMIT_MAX = 1000


def created(record: SandboxRecord, domain: str) -> dict[str, Any]:
    """Returns the answer to a client that has made a sandbox or connects to it."""
    found = {
        "templateID": record.template,
        "sandboxID": record.id,
        "clientID": CLIENT,
        "envdVersion": VERSION,
        "envdAccessToken": record.token,
        "trafficAccessToken": record.traffic_token,
    }
    return {**found, "domain": domain} if domain else found


def listed(record: SandboxRecord) -> dict[str, Any]:
    """Returns a sandbox in a list."""
    return {
        "templateID": record.template,
        "sandboxID": record.id,
        "clientID": CLIENT,
        "startedAt": moment(record.created),
        "endAt": moment(record.ends),
        "cpuCount": record.cpus,
        "memoryMB": record.memory_mb,
        "diskSizeMB": record.disk_mb,
        "state": shown_state(record),
        "envdVersion": VERSION,
        "metadata": record.metadata,
    }


def detailed(record: SandboxRecord, domain: str) -> dict[str, Any]:
    """Returns a sandbox by itself."""
    found = {
        **listed(record),
        "envdAccessToken": record.token,
        "allowInternetAccess": record.internet,
        "lifecycle": {"autoResume": record.auto_resume, "onTimeout": record.on_timeout},
    }
    if record.network:
        found["network"] = record.network
    if domain:
        found["domain"] = domain
    if record.state is State.PAUSED:
        found["pauseMode"] = "full" if record.paused_memory else "filesystem"
    return found


def told_snapshot(snapshot: SnapshotRecord) -> dict[str, Any]:
    return {"snapshotID": snapshot.id, "names": [snapshot.name] if snapshot.name else []}


def shown_state(record: SandboxRecord) -> str:
    return "running" if record.state is State.RUNNING else "paused"


def moment(unix: float) -> str:
    """Returns a time in RFC 3339."""
    return (
        datetime.fromtimestamp(unix, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The filter of a list of sandboxes."""

    states: frozenset[str]
    metadata: dict[str, str]
    template: str
    started_after: float
    is_rising: bool
    """The oldest sandbox comes first."""

    @classmethod
    def parse(cls, query: dict[str, str]) -> Wanted:
        """Reads the filter of a request. Raises ApiError (400)."""
        states = frozenset((query.get("state") or "running,paused").split(","))
        if not states <= {"running", "paused"}:
            raise ApiError(400, "state must be running, paused, or both with a comma")
        order = query.get("order") or "desc"
        if order not in ("asc", "desc"):
            raise ApiError(400, "order must be asc or desc")
        return cls(
            states=states,
            metadata=_metadata(query.get("metadata", "")),
            template=query.get("template", ""),
            started_after=_unix(query.get("startedAfter", "")),
            is_rising=order == "asc",
        )

    def takes(self, record: SandboxRecord) -> bool:
        return (
            shown_state(record) in self.states
            and self.metadata.items() <= record.metadata.items()
            and self.template in ("", record.template)
            and record.created >= self.started_after - ROUNDED_S
        )

    def of(self, records: Iterable[SandboxRecord]) -> list[SandboxRecord]:
        found = [record for record in records if self.takes(record)]
        return sorted(found, key=lambda r: (r.created, r.id), reverse=not self.is_rising)


def page(found: Sequence[Any], query: dict[str, str]) -> tuple[Sequence[Any], str]:
    """Returns the part of a list that a request asks for, and the token of the next part, "" if
    there is none. The things have an ``id``; if one is gone meanwhile, no other is skipped. Raises
    ApiError (400)."""
    limit = whole(query.get("limit") or str(LIMIT), "limit", least=1, most=LIMIT_MAX)
    begin = 0
    if token := query.get("nextToken"):
        created_at, id_ = _position(token)
        falling = len(found) > 1 and found[0].created > found[-1].created
        for begin, item in enumerate(found):  # noqa: B007 - the place is what is looked for
            at = (item.created, item.id)
            if (at < (created_at, id_)) if falling else (at > (created_at, id_)):
                break
        else:
            begin = len(found)
    part = found[begin : begin + limit]
    if begin + limit >= len(found):
        return part, ""
    return part, _token(part[-1])


def _token(last: Any) -> str:
    text = f"{last.created!r} {last.id}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def _position(token: str) -> tuple[float, str]:
    try:
        created_at, _, id_ = base64.urlsafe_b64decode(token.encode()).decode().partition(" ")
        return float(created_at), id_
    except (binascii.Error, ValueError):
        raise ApiError(400, "nextToken is not one of this server's") from None


def _metadata(text: str) -> dict[str, str]:
    """Returns the pairs of a query string whose names and values are quoted once more."""
    pairs = urllib.parse.parse_qsl(text, keep_blank_values=True, max_num_fields=100)
    return {urllib.parse.unquote(key): urllib.parse.unquote(value) for key, value in pairs}


def _unix(text: str) -> float:
    if not text:
        return float("-inf")
    try:
        return datetime.fromisoformat(text.replace(" ", "+")).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ApiError(400, "startedAfter must be a time of RFC 3339") from None
