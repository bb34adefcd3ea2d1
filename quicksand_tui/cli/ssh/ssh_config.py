"""`quicksand-tui ssh-config`: the config by which ssh reaches sandboxes."""

from __future__ import annotations

import difflib
import os
import pwd
import re
from itertools import pairwise
from pathlib import Path

import click
from quicksand.base.files import map_os_errors
from quicksand.base.paths import home, paths

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, say
from quicksand_tui.cli.ssh.ssh_files import SUFFIX, config_file, config_text, prepare_files
from quicksand_tui.cli.whole_files import write_whole
from quicksand_tui.model.text import clean, clean_lines

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
