"""A client's wishes for a sandbox's network: what it may reach, and how its ports are reached.

A sandbox has the internet as QEMU's user network gives it, or no network, and keeps that for its
life. So rules can be kept that let everything out, or nothing; a filter inside the guest would be
no boundary, since its users are root. All other rules are refused, never ignored.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Any

from quicksand_e2b.errors import ApiError
from quicksand_e2b.fields import Body

DOMAIN_MAX = 253
"""The most characters of a domain name (RFC 1035, 2.3.4, as text)."""

_DOMAIN = re.compile(r"(?:\*\.)?(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")
_HOST = re.compile(r"(?:[A-Za-z0-9._:\[\]-]|\$\{PORT\}){1,255}")
_PORT = "${PORT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """The addresses that a sandbox may reach. Allowed addresses go before denied ones."""

    allowed: tuple[str, ...] = ()
    """Addresses, networks and domain names."""
    denied: tuple[str, ...] = ()
    """Addresses and networks."""
    is_shut: bool = False
    """Whether all addresses are denied that are not allowed."""

    @classmethod
    def parse(cls, body: Body, *, internet: bool) -> Egress:
        """Reads the rules. ``internet`` is that of the request, beside them. Raises ApiError (400;
        501 for rules that do not exist here)."""
        for name in ("rules", "egressProxy"):
            if body.any(name):
                raise ApiError(
                    501,
                    f"network.{name} is not implemented by quicksand-tui: no proxy of it stands "
                    "between a sandbox and the internet",
                )
        allowed, denied = body.texts("allowOut"), body.texts("denyOut")
        for text in allowed:
            if not _is_network(text) and not _is_domain(text):
                raise ApiError(400, f"allowOut: {text!r:.80} is no address, network or domain name")
        for text in denied:
            if not _is_network(text):
                raise ApiError(400, f"denyOut: {text!r:.80} is no address and no network")
        is_shut = not internet or any(_is_all(text) for text in denied)
        return cls(allowed=tuple(allowed), denied=tuple(denied), is_shut=is_shut)

    @property
    def internet(self) -> bool:
        """Whether anything may be reached."""
        return not self.is_shut or bool(self.allowed)

    @property
    def is_partial(self) -> bool:
        """Whether a part of the internet may be reached, and a part may not."""
        return self.internet and (self.is_shut or bool(self.denied))

    def told(self) -> dict[str, Any]:
        """Returns the rules as a client gave them."""
        lists = {"allowOut": list(self.allowed), "denyOut": list(self.denied)}
        return {name: found for name, found in lists.items() if found}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The network of a new sandbox."""

    egress: Egress = field(default_factory=Egress)
    is_public: bool = True
    """Whether its ports are reached without a token."""
    host_mask: str = ""
    """The Host that requests to its ports have there, with `_PORT` for the port; "" for their
    own."""

    @classmethod
    def parse(cls, body: Body, *, internet: bool) -> Wanted:
        """Reads the wishes. Raises ApiError (400, 501)."""
        mask = body.text("maskRequestHost", "")
        if mask and not _HOST.fullmatch(mask):
            raise ApiError(400, f"maskRequestHost: {mask!r:.80} is no host (it may have {_PORT})")
        return cls(
            egress=Egress.parse(body, internet=internet),
            is_public=body.flag("allowPublicTraffic", True),
            host_mask=mask,
        )

    def told(self) -> dict[str, Any]:
        found = self.egress.told()
        if not self.is_public:
            found["allowPublicTraffic"] = False
        if self.host_mask:
            found["maskRequestHost"] = self.host_mask
        return found


def changed(network: dict[str, Any], egress: Egress) -> dict[str, Any]:
    """Returns the description of a sandbox's network after a change of its egress rules."""
    kept = {name: found for name, found in network.items() if name not in ("allowOut", "denyOut")}
    return {**kept, **egress.told()}


def require_kept(egress: Egress, *, has_internet: bool) -> None:
    """Checks that a sandbox keeps these rules; one without the internet always does. Raises
    ApiError (501)."""
    if has_internet and egress.is_partial:
        raise ApiError(
            501,
            "allowOut and denyOut are kept here only if they deny everything: deny 0.0.0.0/0 and "
            "allow nothing, or set allow_internet_access to false. Sandboxes of a server without "
            "--internet reach nothing, and take all rules",
        )
    if has_internet and not egress.internet:
        raise ApiError(
            501,
            "what has the internet keeps it here, and so does what is made of a snapshot of it: "
            "make a new sandbox without it",
        )


def masked(mask: str, port: int) -> str:
    """Returns the Host that a request to a port has in the guest."""
    return mask.replace(_PORT, str(port))


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _is_all(text: str) -> bool:
    """Whether a network is all traffic. A sandbox has no IPv6 to the outside."""
    network = ipaddress.ip_network(text, strict=False)
    return network.version == 4 and network.prefixlen == 0


def _is_domain(text: str) -> bool:
    return len(text) <= DOMAIN_MAX and _DOMAIN.fullmatch(text) is not None
