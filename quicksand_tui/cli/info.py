"""`quicksand-tui info`: where everything is, and which versions are in use."""

from __future__ import annotations

from typing import Any

import click

from quicksand_tui.cli.options import json_option

PACKAGES = ("click", "platformdirs", "qemu.qmp", "textual")


@click.command("info")
@json_option
def command(as_json: bool) -> None:
    """Show places, versions and programs in use.

    `doctor` checks them.
    """
    from quicksand_tui.cli.output import print_json, print_table

    facts = _facts()
    if as_json:
        print_json(facts)
        return
    rows = [
        (group, key, "" if value is None else value)
        for group, values in facts.items()
        for key, value in values.items()
    ]
    print_table(("", "WHAT", "VALUE"), rows)


def _facts() -> dict[str, dict[str, Any]]:
    return {
        "places": _places(),
        "versions": _versions(),
        "qemu": _qemu(),
        "agent": _agent(),
        "sandboxes": _sandboxes(),
    }


def _places() -> dict[str, Any]:
    from quicksand.host.paths import paths

    from quicksand_tui.places import config_file
    from quicksand_tui.state_files import state_dir

    found = paths()
    return {
        "config": str(config_file()),
        "state": str(state_dir()),
        "runtime": str(found.runtime),
        "data": str(found.data),
        "cache": str(found.cache),
        "sandboxes": str(found.sandboxes),
        "images": str(found.images),
        "saves": str(found.saves),
    }


def _versions() -> dict[str, Any]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from quicksand_tui import __version__

    found: dict[str, Any] = {"quicksand-tui": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return {**found, "host": platform.platform()}


def _qemu() -> dict[str, Any]:
    from quicksand.errors import QuicksandError
    from quicksand.host.arch import Architecture
    from quicksand.qemu.binaries import find_binaries

    try:
        found = find_binaries(Architecture.host().value)
    except QuicksandError as error:
        return {"error": str(error)}
    return {
        "program": str(found.system),
        "version": found.version_text,
        "from": found.origin,
        "qemu-img": str(found.img) if found.img is not None else None,
    }


def _agent() -> dict[str, Any]:
    import hashlib

    from quicksand.errors import QuicksandError
    from quicksand.host.arch import Architecture
    from quicksand.images.initrd import find_agent

    found: dict[str, Any] = {}
    for arch in Architecture:
        try:
            path = find_agent(arch)
        except QuicksandError:
            found[arch.value] = None
        else:
            found[arch.value] = str(path)
            found[f"{arch.value} sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _sandboxes() -> dict[str, Any]:
    from collections import Counter

    from quicksand.host.paths import paths
    from quicksand.registry import Registry, Status

    counts = Counter(entry.status for entry in Registry(paths()).list())
    return {status.value: counts[status] for status in Status if counts[status]}
