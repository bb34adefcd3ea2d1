"""Completion of command lines by shells: the words, and `quicksand-tui completions`, the scripts.

Each function `complete_` completes one kind of word, and takes click's arguments: the context, the
parameter, and the word so far. A shell waits for it at each TAB, so it imports what its kind needs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths

from quicksand_tui.cli import lazy_commands as lazy
from quicksand_tui.cli.click_commands import cli, command_of
from quicksand_tui.cli.output import COMPLETE_VARIABLE, PROGRAM, Exit, complain, say
from quicksand_tui.home.state import config_file
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.records.nodes import Node


def beginning(typed: str, words: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    """Returns the words that begin with the typed text, each with its description."""
    return [CompletionItem(word, help=about) for word, about in words if word.startswith(typed)]


def a_file(typed: str) -> list[CompletionItem]:
    """Returns that the word is a path, which the shell completes."""
    return [CompletionItem(typed, type="file")]


def complete_sandboxes(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of sandboxes."""
    entries = lazy.Registry(paths()).list()
    return beginning(incomplete, ((entry.name, entry.status.value) for entry in entries))


def complete_copied(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes files of this host, and sandboxes as ``NAME:``."""
    items = a_file(incomplete)
    if "/" not in incomplete and ":" not in incomplete:
        found = complete_sandboxes(ctx, param, incomplete)
        items += [CompletionItem(f"{item.value}:/") for item in found]
    return items


def complete_images(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of images; a word with a slash is a path."""
    if "/" in incomplete:
        return a_file(incomplete)
    sources = dict.fromkeys(lazy.buildable_images(), "not built yet")
    sources |= {image.name: image.source for image in lazy.ImageResolver(paths()).list()}
    here = Path().glob(f"*{lazy.BUNDLE_SUFFIX}")
    sources |= {path.name: "a bundle" for path in here if path.is_file()}
    return beginning(incomplete, sorted(sources.items()))


def complete_stored(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of images that are in the store."""
    store = lazy.ImageStore(paths().images)
    found = {image.root.parent.name: image.version for image in store.list()}
    found |= {image.versioned: f"from {image.bundle}" for image in store.unpacked()}
    return beginning(incomplete, sorted(found.items()))


def complete_recipes(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of recipes, and files of one's own; a word with a slash is a path."""
    if "/" in incomplete:
        return a_file(incomplete)
    names = [*lazy.buildable_images(), *(path.name for path in Path().glob("*.toml"))]
    return beginning(incomplete, ((name, "") for name in sorted(names)))


def complete_tags(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes tags of the checkpoints of the sandbox that the command line names."""
    nodes = _checkpoints_of(_named_before(ctx))
    return beginning(incomplete, ((node.tag, node.note) for node in nodes))


def complete_targets(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes as `complete_tags` does, and OTHER:TAG for other sandboxes: first their names, then
    their tags."""
    found = complete_tags(ctx, param, incomplete)
    other, colon, _ = incomplete.partition(":")
    if colon:
        theirs = ((f"{other}:{node.tag}", node.note) for node in _checkpoints_of(other))
        return found + beginning(incomplete, theirs)
    mine = _named_before(ctx)
    others = (
        (f"{entry.name}:", "its checkpoints")
        for entry in lazy.Registry(paths()).list()
        if entry.name.startswith(incomplete)
        and mine not in (None, entry.name, entry.id)
        and _checkpoints_of(entry.id)
    )
    return found + beginning(incomplete, others)


def _named_before(ctx: click.Context) -> str | None:
    """Returns the name of a sandbox that stands before the word that is being completed, if any."""
    # When an option's value is being completed, click has not sorted the arguments yet.
    known = (ctx.params.get("name"), *(ctx.params.get("names") or ctx.args))
    return next(filter(None, known), None)


def _checkpoints_of(name: str | None) -> list[Node]:
    with contextlib.suppress(QuicksandError, OSError):
        if name is not None:
            registry = lazy.Registry(paths())
            return lazy.history_of(registry, registry.find(name).id).nodes()
    return []


def complete_hosts(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of machines of the config."""
    return beginning(incomplete, sorted(_of_config().items()))


def _of_config() -> Mapping[str, str]:
    with contextlib.suppress(lazy.HostsError, OSError):
        return lazy.read_hosts(config_file())
    return {}


def complete_mount(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes HOST of HOST:GUEST: directories of this host, which the shell lists."""
    return [] if ":" in incomplete else [CompletionItem(incomplete, type="dir")]


def complete_mounted(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes paths in the guest at which a directory is mounted."""
    registry = lazy.Registry(paths())
    try:
        entry = registry.find(ctx.params.get("name") or "")
    except (QuicksandError, OSError):
        return []
    now = (lazy.MountState.MOUNTED, lazy.MountState.NOT_SERVED, lazy.MountState.MOVED)
    mounts = [one for one in lazy.known_mounts(registry, entry) if one.state in now]
    return beginning(incomplete, ((mount.guest, mount.host) for mount in mounts))


QEMU = "qemu"


def complete_installed(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of images that were installed from packages, and qemu if it was."""
    found = {image.name: image.version for image in lazy.installed_images(paths())}
    if versions := lazy.unpacked_versions(paths()):
        found[QEMU] = versions[0]
    return beginning(incomplete, sorted(found.items()))


def complete_packages(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of published images, and files of wheels; a word with a slash is a path."""
    if "/" in incomplete:
        return a_file(incomplete)
    names = [*lazy.PUBLISHED, QEMU, *(path.name for path in Path().glob("*.whl"))]
    return beginning(incomplete, ((name, "") for name in sorted(names)))


def complete_saves(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of saves."""
    saves = (save for store in lazy.all_stores(paths()) for save in store.list())
    notes = ((save.name, save.manifest.note if save.manifest else "damaged") for save in saves)
    return beginning(incomplete, notes)


def complete_exported(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of saves, of sandboxes after ``--tree``, or of images after ``--image``."""
    complete = complete_sandboxes if ctx.params.get("tree") else complete_saves
    if ctx.params.get("image"):
        complete = complete_images
    return complete(ctx, param, incomplete)


def complete_trash(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of saves in the trash."""
    names = {found.save.name for found in lazy.list_trash(lazy.known_stores(paths()))}
    return beginning(incomplete, ((name, "") for name in sorted(names)))


def complete_all_trash(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names and ids of sandboxes and saves in the trash."""
    found = [
        (trashed.name, trashed.id, "sandbox")
        for trashed in lazy.SandboxTrash(lazy.Registry(paths())).list()
    ]
    found += [(t.save.name, t.id, "save") for t in lazy.list_trash(lazy.known_stores(paths()))]
    names = {name: f"{kind} {id_}" for name, id_, kind in found}
    ids = {id_: f"the {kind} {name}" for name, id_, kind in found}
    words = [*sorted(names.items()), *(ids.items() if incomplete else ())]
    return beginning(incomplete, words)


LOADERS = {"bash": PROGRAM, "zsh": f"_{PROGRAM}", "fish": f"{PROGRAM}.fish"}
"""For each shell the name of the file that it looks for to complete our command. The wheel installs
these files as shared data, too."""


@command_of("completions")
def completions_command(shell: str, install: bool) -> int:
    """Print completions for your shell, or install them.

    With --install, a small file that loads them when they are needed is put where your shell looks
    for it, in your home directory; the path is printed. bash needs the package bash-completion for
    that, and zsh a line in ~/.zshrc, which is shown.

    Or add this to the file that your shell reads at its start:

    \b
    bash  eval "$(quicksand-tui completions bash)"          ~/.bashrc
    zsh   eval "$(quicksand-tui completions zsh)"           ~/.zshrc
    fish  quicksand-tui completions fish | source           ~/.config/fish/config.fish
    """
    if install:
        return _install(shell)
    found = get_completion_class(shell)
    assert found is not None
    print(found(cli, {}, PROGRAM, COMPLETE_VARIABLE).source())
    return Exit.OK


def _install(shell: str) -> int:
    """Writes the file from which the shell loads the completions; returns the exit code. Another
    file in its place is left alone."""
    text = (Path(__file__).parent / "loaders" / LOADERS[shell]).read_text(encoding="utf-8")
    place = place_for(shell)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if not _has(place, text):
            complain(
                f"{clean(place)} is there already, and it is not ours",
                hint=f"`{PROGRAM} completions --help` shows how to do without that file",
            )
            return Exit.FAILURE
    click.echo(clean(place))
    if shell == "zsh":
        say("put this into ~/.zshrc, before compinit is called:")
        say(f"   fpath=({clean(place.parent)} $fpath)")
    return Exit.OK


def _has(place: Path, text: str) -> bool:
    """Returns whether a file has that text and no more."""
    if not place.is_file():
        return False
    with place.open("rb") as file:
        return file.read(len(text.encode()) + 1) == text.encode()


def place_for(shell: str) -> Path:
    """Returns the path of the file that a shell loads for our command, among the user's own.

    bash: https://github.com/scop/bash-completion, README; fish: fish-completions(1). zsh has no
    directory for users; the one here is that of packages (site-functions), in the user's data.
    """
    data = _directory("XDG_DATA_HOME", ".local/share")
    if shell == "bash":
        named = os.environ.get("BASH_COMPLETION_USER_DIR", "").partition(":")[0]
        root = Path(named) if named else data / "bash-completion"
        return root / "completions" / LOADERS[shell]
    if shell == "zsh":
        return data / "zsh" / "site-functions" / LOADERS[shell]
    return _directory("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / LOADERS[shell]


def _directory(variable: str, usual: str) -> Path:
    """Returns a user's directory; a relative one does not count (XDG Base Directory
    Specification)."""
    named = os.environ.get(variable, "")
    return Path(named) if Path(named).is_absolute() else Path.home() / usual
