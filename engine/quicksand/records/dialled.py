"""Forwards that were made while a sandbox runs, and the files of the process that carries them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.fields import Fields
from quicksand.base.files import is_locked, read_json, write_json
from quicksand.records.port_forwards import PortForward, Protocol
from quicksand.records.sandboxes import read_forwards


@dataclass(frozen=True, slots=True)
class ForwarderFiles:
    """The files of the process that carries forwards, in the sandbox's runtime directory."""

    root: Path

    @property
    def forwards(self) -> Path:
        """The ports that are forwarded at this moment, as JSON."""
        return self.root / "forwards.json"

    @property
    def socket(self) -> Path:
        return self.root / "forwarder.sock"

    @property
    def lock(self) -> Path:
        """Flock'ed by the process while it lives."""
        return self.root / "forwarder.lock"


@dataclass(frozen=True, slots=True)
class Dialled:
    """The forwards that were made while a sandbox runs."""

    forwards: tuple[PortForward, ...] = ()
    error: str = ""
    """The reason why the forwards are unknown; "" if they are known."""


def read_dialled(files: ForwarderFiles) -> Dialled:
    """Read the forwards that were made while a sandbox runs. A broken record is reported, not
    raised."""
    try:
        found = Dialled(_decode(read_json(files.forwards)))
    except FileNotFoundError:
        return Dialled()
    except (OSError, ValueError) as error:
        found = Dialled(error=f"the record of its forwarded ports is broken: {error}")
    # A forwarder that was killed leaves its file behind, and nobody listens there.
    with contextlib.suppress(OSError):
        return found if is_locked(files.lock) else Dialled()
    return Dialled()


def write_dialled(files: ForwarderFiles, forwards: Iterable[PortForward]) -> None:
    """Write the record. Raises DiskSpaceError, PathError."""
    pairs: dict[Protocol, list[tuple[int, int]]] = {Protocol.TCP: [], Protocol.UDP: []}
    for forward in forwards:
        pairs[forward.protocol].append((forward.host, forward.guest))
    value = {"forwards": pairs[Protocol.TCP], "udp": pairs[Protocol.UDP]}
    write_json(files.forwards, value, read=_decode, durable=False)


def _decode(value: object) -> tuple[PortForward, ...]:
    """Raises ValueError."""
    fields = Fields(value, "bad forwards")
    tcp = read_forwards(fields)
    # The process of an earlier version, which may still run, carries no UDP forwards.
    udp = read_forwards(fields, "udp") if fields.has("udp") else ()
    return (
        *(PortForward(host, guest) for host, guest in tcp),
        *(PortForward(host, guest, Protocol.UDP) for host, guest in udp),
    )
