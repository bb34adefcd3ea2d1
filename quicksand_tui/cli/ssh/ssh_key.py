"""Makes the key by which clients know our SSH servers. It identifies this program, not a guest:
guests are made, cloned and reverted all day."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)
from quicksand.base.errors import HostError
from quicksand.base.files import map_os_errors
from quicksand.base.paths import make_private_dir
from quicksand.base.regular import read_file

from quicksand_tui.cli.whole_files import write_whole


def make_key(file: Path, known_hosts: Path, alias: str) -> None:
    """Makes the key unless it exists, and a known_hosts with it for the host ``alias``. Several
    processes that do it at once all end up with the same key. Raises HostError."""
    make_private_dir(file.parent)
    with map_os_errors(file):
        if not file.exists():
            _put(file)
        try:
            key = load_ssh_private_key(read_file(file), password=None)
        except ValueError as error:
            raise HostError(
                f"{file} is no private key: {error}",
                hint=f"remove it; a new one is made, and {known_hosts} with it",
            ) from error
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        write_whole(known_hosts, f"{alias} {public.decode('ascii')}\n")


def _put(file: Path) -> None:
    private = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()
    )
    new = file.with_name(f".{file.name}.{os.getpid()}")
    write_whole(new, private.decode("ascii"))
    try:
        os.link(new, file)  # fails if another process was faster
    except FileExistsError:
        pass
    finally:
        new.unlink()
