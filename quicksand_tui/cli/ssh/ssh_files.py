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
from quicksand.base.regular import read_file
from quicksand.records.host_sockets import ssh_masters
from quicksand.records.known_hosts import config_file as hosts_file

from quicksand_tui.cli.whole_files import write_whole

SUFFIX = ".qs"
"""The domain of sandboxes as hosts. There is no such top-level domain."""

USUAL_USER = "default"
"""The user name that stands for the image's own user: a config for all sandboxes must name
somebody, or ssh would send the name that its user has here."""

HOST_ALIAS = "quicksand"
"""The name of all sandboxes in known_hosts: one key stands for all of them."""

SOCKET_SPACE = 104 - 1 - 40 - 17 - 1
"""The most bytes of the directory of a master's socket. Its path has 104 with the NUL; %C is 40,
and while it is made ssh adds a dot and 16 more (unix(7), muxserver_listen in OpenSSH's mux.c)."""

CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com"
"""The ciphers; the client's order decides. With AES in the processor the first is twice as fast as
the last."""

CONFIG = """\
# Written by quicksand-tui, and written anew when something here changes:
# `ssh NAME{suffix}` reaches the sandbox NAME, `ssh NAME.HOST{suffix}` the one of the machine HOST.
Host *{suffix} "!*'*"
    ProxyCommand {command}
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
    """Returns the private key of our servers: one for each data directory."""
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
    """Makes missing files of ours, and writes the config anew if it differs; returns the config.
    Raises HostError (PathError, DiskSpaceError)."""
    places = paths()
    if not (key_file(places).exists() and known_hosts_file(places).exists()):
        from quicksand_tui.cli.ssh.ssh_key import make_key  # noqa: PLC0415

        make_key(key_file(places), known_hosts_file(places), HOST_ALIAS)
    make_private_dir(ssh_dir(places))
    file, text = config_file(places), config_text(places)
    with map_os_errors(file):
        if not file.exists() or read_file(file) != text.encode("utf-8", "surrogateescape"):
            write_whole(file, text)
    return file


def config_text(places: Paths) -> str:
    """Returns the config."""
    text = CONFIG.format(
        suffix=SUFFIX,
        command=proxy_command(places),
        user=USUAL_USER,
        alias=HOST_ALIAS,
        known_hosts=_in_config(known_hosts_file(places)),
        ciphers=CIPHERS,
    )
    if (sockets := sockets_dir(places)) is not None:
        text += MASTER.format(sockets=_in_config(sockets))
    return text


def proxy_command(places: Paths, machine: str = "") -> str:
    """Returns the command by which ssh reaches a host of ours, or a sandbox of ``machine``."""
    host = ["--host", machine] if machine else []
    words = " ".join(shlex.quote(word) for word in (*_program(places), *host, "ssh", "--stdio"))
    return f"{words.replace('%', '%%')} '%n'"


def _in_config(path: Path) -> str:
    return str(path).replace("%", "%%")


def _program(places: Paths) -> list[str]:
    """Returns the command of this program that works everywhere. It names the places of this
    config's sandboxes, whatever is set where ssh runs: a connection that is kept is found by users
    of this config, and must not lead to another sandbox of the same name."""
    settings = {
        "QUICKSAND_DATA_DIR": places.data.absolute(),
        "QUICKSAND_RUNTIME_DIR": places.runtime.absolute(),
        "QUICKSAND_CACHE_DIR": places.cache.absolute(),
        # The names of other machines are those of this config; without a name, none is meant.
        "QUICKSAND_CONFIG": hosts_file(),
        "QUICKSAND_HOST": "",
    }
    env = ["env", *(f"{name}={place}" for name, place in settings.items())]
    script = Path(sys.argv[0])
    with contextlib.suppress(OSError):
        if script.name == "quicksand-tui" and script.is_absolute() and script.exists():
            return [*env, str(script)]
    # -P: a directory of that name in the working directory of ssh is not imported.
    words = [sys.executable, "-P", "-m", "quicksand_tui"]
    return [*env, *words]
