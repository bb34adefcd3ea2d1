"""Our files for ssh: its config, and the hosts it knows. A client that uses them needs no question
answered, and offers nothing of the user's to a sandbox."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path

from quicksand.base.files import map_os_errors
from quicksand.base.paths import Paths, make_private_dir, paths
from quicksand.records.host_sockets import ssh_masters

from quicksand_tui.cli.whole_files import write_whole

SUFFIX = ".qs"
"""Sandboxes are hosts of this domain. There is no such top-level domain."""

USUAL_USER = "default"
"""The user name of clients that want whom the image says: a config for all sandboxes must name
somebody, or ssh would send the name that its user has here."""

HOST_ALIAS = "quicksand"
"""The name of all sandboxes in known_hosts: one key stands for all of them."""

SOCKET_SPACE = 104 - 1 - 40 - 17 - 1
"""Bytes for the directory of a master's socket. Its path has 104 with the NUL; %C is 40, and while
it is made ssh adds a dot and 16 more (unix(7), muxserver_listen in OpenSSH's mux.c)."""

ENVIRONMENT = (
    "QUICKSAND_DATA_DIR",
    "QUICKSAND_RUNTIME_DIR",
    "QUICKSAND_CACHE_DIR",
    "QUICKSAND_STATE_DIR",
)
"""Variables that ssh must find these sandboxes with, also where an editor starts it."""

CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com"
"""The client's order decides. With AES in the processor the first is twice as fast as the last."""

CONFIG = """\
# Written by quicksand-tui, and written anew when something here changes:
# `ssh NAME{suffix}` reaches the sandbox NAME.
Host *{suffix} "!*'*"
    ProxyCommand {command} ssh --stdio '%n'
    User {user}
    HostKeyAlias {alias}
    UserKnownHostsFile "{known_hosts}"
    StrictHostKeyChecking yes
    CheckHostIP no
    PubkeyAuthentication no
    PasswordAuthentication no
    KbdInteractiveAuthentication no
    GSSAPIAuthentication no
    IdentityAgent none
    IdentitiesOnly yes
    ForwardAgent no
    ForwardX11 no
    Ciphers {ciphers}
    Compression no
    ServerAliveInterval 15
    SendEnv COLORTERM
    LogLevel ERROR
"""

MASTER = """\
    ControlMaster auto
    ControlPath "{sockets}/%C"
    ControlPersist 60
"""


def ssh_dir(places: Paths) -> Path:
    return places.data / "ssh"


def key_file(places: Paths) -> Path:
    """Returns the private key that our servers have: one for each data directory."""
    return ssh_dir(places) / "host_key"


def known_hosts_file(places: Paths) -> Path:
    return ssh_dir(places) / "known_hosts"


def config_file(places: Paths) -> Path:
    return ssh_dir(places) / "config"


def sockets_dir(places: Paths) -> Path | None:
    """Returns the directory for the sockets of ssh's masters; None if a path in it would be too
    long for a socket."""
    found = ssh_masters(places)
    return found if len(os.fsencode(found)) <= SOCKET_SPACE else None


def prepare_files() -> Path:
    """Makes what is missing of our files, and writes the config anew if it differs; returns the
    config. Raises HostError (PathError, DiskSpaceError)."""
    places = paths()
    if not (key_file(places).exists() and known_hosts_file(places).exists()):
        from quicksand_tui.cli.ssh_key import make_key  # noqa: PLC0415

        make_key(key_file(places), known_hosts_file(places), HOST_ALIAS)
    make_private_dir(ssh_dir(places))
    file, text = config_file(places), config_text(places)
    with map_os_errors(file):
        if not file.exists() or file.read_bytes() != text.encode("utf-8", "surrogateescape"):
            write_whole(file, text)
    return file


def config_text(places: Paths) -> str:
    """Returns the config."""
    command = " ".join(shlex.quote(word) for word in _program())
    text = CONFIG.format(
        suffix=SUFFIX,
        command=command.replace("%", "%%"),
        user=USUAL_USER,
        alias=HOST_ALIAS,
        known_hosts=_in_config(known_hosts_file(places)),
        ciphers=CIPHERS,
    )
    if (sockets := sockets_dir(places)) is not None:
        text += MASTER.format(sockets=_in_config(sockets))
    return text


def _in_config(path: Path) -> str:
    return str(path).replace("%", "%%")


def _program() -> list[str]:
    """Returns this program as it can be started from everywhere."""
    settings = [f"{name}={os.environ[name]}" for name in ENVIRONMENT if os.environ.get(name)]
    script = Path(sys.argv[0])
    with contextlib.suppress(OSError):
        if script.name == "quicksand-tui" and script.is_absolute() and script.exists():
            return [*(["env", *settings] if settings else []), str(script)]
    # -P: a directory of that name where ssh happens to be called is not it.
    words = [sys.executable, "-P", "-m", "quicksand_tui"]
    return [*(["env", *settings] if settings else []), *words]
