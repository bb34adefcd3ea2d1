"""Refuses whatever could reach this host from a bundle: in its configuration and in the headers of
its disks. Only our own code reads them, before any QEMU program sees a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from quicksand_disks import (
    DiskFileError,
    ForeignDisk,
    MalformedError,
    Qcow2Header,
    check_backing_name,
    check_qcow2,
    check_snapshots,
)

from quicksand.base.arch import Architecture
from quicksand.base.errors import BundleError
from quicksand.base.remedies import Words
from quicksand.records.config import NetworkMode, SandboxConfig
from quicksand.saves.resolving import left_out_of


def check_config(config: SandboxConfig, other: Mapping[str, Any] | None = None) -> None:
    """Raise BundleError if a configuration from elsewhere reaches this host."""
    reason = dangers(config, other)
    if reason:
        raise BundleError(
            f"the bundle {reason}",
            hint=Words(
                "if you know who made it, ",
                Words("`import --trust`", python="`trusted=True`"),
                " takes it all the same",
            ),
        )


def dangers(config: SandboxConfig, other: Mapping[str, Any] | None = None) -> str:
    """Return the options of a configuration that only a trusted file may choose, or ""."""
    if config.extra_qemu_args:
        words = " ".join(config.extra_qemu_args)
        return f"has QEMU arguments of its own, which can read and run anything here: {words[:200]}"
    if mounts := config.mounts or (other or {}).get("mounts"):
        return f"mounts directories of this host: {str(mounts)[:200]}"
    return ""


def warnings(config: SandboxConfig, arch: str, *, trusted: bool) -> Iterator[str]:
    """Yield warnings before a start: that this host is of another architecture than ``arch``;
    options that reach this host, or that are left out."""
    yield from foreign(arch)
    if not trusted:
        if left_out := left_out_of(config):
            yield (
                f"what it asks for is left out ({'; '.join(left_out)}): give it yourself at the "
                "start, or `import --trust` if you know who made it"
            )
        return
    if config.network_mode is NetworkMode.FULL:
        yield "its network mode is full: what runs in it reaches this host's own services"
    if config.port_forwards:
        ports = ", ".join(forward.between(" -> ") for forward in config.port_forwards)
        yield f"it forwards ports of this host: {ports}"


def foreign(arch: str) -> Iterator[str]:
    """Yield the warning that a machine of ``arch`` must be emulated, if so."""
    host = Architecture.host()
    if Architecture.parse(arch) is not host:
        yield (
            f"it is for {arch}, and this host is {host.value}: it starts only with QEMU for "
            f"{arch}, and everything in it is slow"
        )


class DiskWatch(ForeignDisk):
    """Checks a disk of a bundle while it is written. `check_disk` or `check_layer` check it again
    when it is complete."""

    def look(self, data: bytes) -> None:
        """Check the next piece of the file. Raises BundleError."""
        try:
            super().look(data)
        except DiskFileError as error:
            raise BundleError(str(error), hint=error.hint) from error


def check_layer(path: Path, name: str, *, snapshots: bool = False) -> Qcow2Header:
    """Check the header of a layer that is called ``name`` in the bundle. ``snapshots`` allows
    internal snapshots. Raises BundleError.
    """
    header = check_disk(path, name, allow_backing=True)
    try:
        check_backing_name(header.backing_file)
        if header.snapshots and not snapshots:
            raise MalformedError(f"it holds {header.snapshots} snapshots")
    except MalformedError as error:
        raise BundleError(f"{name} is refused: {error}") from error
    return header


def check_disk(path: Path, name: str, *, allow_backing: bool = False) -> Qcow2Header:
    """Check a qcow2 header as `check_qcow2` does, naming the bundle's file. Raises BundleError."""
    try:
        header = check_qcow2(path, allow_backing=allow_backing)
    except DiskFileError as error:
        reason = error.__cause__ or error
        message = f"{name} is not a usable qcow2 image: {reason}"
        raise BundleError(message, hint=error.hint) from error
    try:
        check_snapshots(path)
    except MalformedError as error:
        raise BundleError(f"{name} is refused: {error}") from error
    return header
