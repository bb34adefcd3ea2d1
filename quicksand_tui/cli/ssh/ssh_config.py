"""How ssh knows sandboxes: `quicksand-tui ssh-config`, our config, hosts and key, and the names.

A client that uses our files needs no question answered, and offers nothing of the user's to a
sandbox. NAME.qs is a sandbox of this machine, NAME.HOST.qs one of another. The key identifies this
program, not a guest: guests are made, cloned and reverted all day.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import pwd
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import click
from quicksand.base.errors import ConfigError, HostError
from quicksand.base.files import map_os_errors
from quicksand.base.paths import Paths, home, make_private_dir, paths
from quicksand.base.regular import read_file
from quicksand.records.host_sockets import ssh_masters
from quicksand.records.known_hosts import config_file as hosts_file

from quicksand_tui.cli import lazy_commands as lazy
from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, say
from quicksand_tui.model.text import clean, clean_lines


def write_whole(file: Path, text: str, mode: int = 0o600) -> None:
    """Writes a file so that readers see the old text or the new one. Raises OSError."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(text.encode("utf-8", "surrogateescape"))
            stream.flush()
            os.fsync(descriptor)
        new.replace(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


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


BEGIN = "# BEGIN quicksand-tui: `quicksand-tui ssh-config --remove` takes these lines out"
END = "# END quicksand-tui"
_OURS = re.compile(r'Include "(/.*)/ssh/config"')
"""The line that `with_include` writes. The data directory may have been another one then."""


@command_of("ssh-config")
def ssh_config_command(install: bool, remove: bool, dry_run: bool) -> int:
    """Print the config by which ssh reaches every sandbox NAME as NAME.qs.

    --install puts one Include line at the beginning of ~/.ssh/config, which is right for all
    sandboxes that there are and will be; --remove takes it out. Either may be repeated. The config
    itself is a file of quicksand-tui's, in its data directory.
    """
    if install and remove:
        raise click.UsageError("--install and --remove exclude each other")
    if dry_run and not (install or remove):
        raise click.UsageError("--dry-run goes with --install or --remove")
    if not (install or remove):
        prepare_files()  # a user who puts it elsewhere needs the files that it names
        click.echo(config_text(paths()), nl=False)
        return Exit.OK
    file = user_config()
    with map_os_errors(file):
        before = _read(file)
        after = without_include(before)
        if install:
            after = with_include(after, config_file(paths()))
        if dry_run:
            return _show(file, before, after)
        if install:
            prepare_files()
        if remove and before and not after and not file.is_symlink():
            file.unlink()  # it had only our lines, so we made it
        elif after != before:
            _write(file, after)
    if install:
        say(f"`ssh NAME{SUFFIX}` reaches the sandbox NAME{_instead(before)}")
    elif after != before:
        say(f"{clean(file)} is as it was before")
    else:
        say(f"nothing of ours is in {clean(file)}")
    return Exit.OK


def user_config() -> Path:
    """Returns the config that ssh reads for this user, who need not have HOME set: ssh(1) asks the
    user database. Raises PathError."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh" / "config"
    except KeyError:  # then ssh does not run, either
        return home() / ".ssh" / "config"


def is_installed() -> bool:
    """Returns whether the user's config includes the one of this data directory. With another data
    directory's, a host of ours is another sandbox of the same name. Raises HostError."""
    file = user_config()
    with map_os_errors(file):
        return _data_of(_read(file)) == str(paths().data)


def with_include(text: str, included: Path) -> str:
    """Returns the user's config with our lines at its beginning: after a Host line they would
    belong to that host."""
    return f'{BEGIN}\nInclude "{included}"\n{END}\n{text}'


def without_include(text: str) -> str:
    """Returns the user's config without our lines: the marks, and between them the line that we
    write. The user has put all else there."""
    kept: list[str] = []
    is_inside = is_first = False
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if bare == BEGIN:
            is_inside = is_first = True
        elif is_inside and bare == END:
            is_inside = is_first = False
        else:
            if not (is_first and _OURS.fullmatch(bare)):
                kept.append(line)
            is_first = False
    return "".join(kept)


def _instead(before: str) -> str:
    """Returns words about the data directory of the config until now, if it was another."""
    data, known = paths().data, _data_of(before)
    if known is None or known == str(data):
        return ""
    return f" of {clean(data)}, and no longer one of {clean(known)}"


def _data_of(text: str) -> str | None:
    """Returns the data directory whose config a user's config includes first, which is the one that
    counts; None if it includes none."""
    for mark, included in pairwise(line.strip() for line in text.splitlines()):
        if mark == BEGIN and (found := _OURS.fullmatch(included)):
            return found[1]
    return None


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""


def _write(file: Path, text: str) -> None:
    """Replaces the config, with its mode; where it is a link, the target of the link."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    real = file.resolve()
    mode = real.stat().st_mode & 0o777 if real.exists() else 0o600
    write_whole(real, text, mode)


def _show(file: Path, before: str, after: str) -> int:
    change = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(file), str(file), lineterm=""
    )
    for line in change:
        click.echo(clean_lines(line))
    return Exit.OK


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Names that can be given to ssh: the sandboxes of other machines are not known here."""


class SshName(NamedTuple):
    """A sandbox and its machine."""

    name: str
    host: str = ""
    """The machine, as `--host` takes it; "" for this one."""

    @property
    def word(self) -> str:
        """The host that ssh is given."""
        return f"{self.name}.{self.host}{SUFFIX}" if self.host else f"{self.name}{SUFFIX}"

    @property
    def has_word(self) -> bool:
        """Whether that host stands for it: a machine without a name has none, nor has a sandbox
        whose host is the name of one on this machine."""
        return find_ssh_name(self.word) == self


def find_ssh_name(word: str) -> SshName:
    """Returns the sandbox that a host of ours stands for, which need not exist: first one of this
    machine, since that may be called like a host of another machine. Raises ConfigError."""
    bare = word.removesuffix(SUFFIX)
    name, _, host = bare.rpartition(".")
    if name and lazy.Registry(paths()).named(bare) is None:
        from quicksand_tui.cli.hosts.hosts import has_name  # noqa: PLC0415

        if has_name(host):
            return there(name, host)
    return SshName(bare)


def find_typed(word: str) -> SshName:
    """Returns the sandbox that a word of a command names: one of this machine by its name or id, or
    else another machine's. Raises QuicksandError."""
    registry = lazy.Registry(paths())
    # A sandbox may itself be called like a host of ours: then it goes first.
    if (named := registry.named(word)) is not None:
        return SshName(named.name)
    found = find_ssh_name(word)
    return found if found.host else SshName(registry.find(found.name).name)


def there(name: str, host: str) -> SshName:
    """Returns a sandbox of another machine. Raises ConfigError for a text that cannot be a name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r:.100} is no name of a sandbox")
    return SshName(name, host)


def make_key(file: Path, known_hosts: Path, alias: str) -> None:
    """Makes the key unless it exists, and a known_hosts with it for the host ``alias``. Several
    processes that do it at once all end up with the same key. Raises HostError."""
    make_private_dir(file.parent)
    with map_os_errors(file):
        if not file.exists():
            _put(file)
        try:
            key = lazy.load_ssh_private_key(read_file(file), password=None)
        except ValueError as error:
            raise HostError(
                f"{file} is no private key: {error}",
                hint=f"remove it; a new one is made, and {known_hosts} with it",
            ) from error
        public = key.public_key().public_bytes(lazy.Encoding.OpenSSH, lazy.PublicFormat.OpenSSH)
        write_whole(known_hosts, f"{alias} {public.decode('ascii')}\n")


def _put(file: Path) -> None:
    private = lazy.Ed25519PrivateKey.generate().private_bytes(
        lazy.Encoding.PEM, lazy.PrivateFormat.OpenSSH, lazy.NoEncryption()
    )
    new = file.with_name(f".{file.name}.{os.getpid()}")
    write_whole(new, private.decode("ascii"))
    try:
        os.link(new, file)  # fails if another process was faster
    except FileExistsError:
        pass
    finally:
        new.unlink()
