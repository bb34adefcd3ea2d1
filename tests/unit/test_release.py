"""The release script refuses what must not be released."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from quicksand_tui import __version__
from scripts import release
from scripts.release import ReleaseError
from tests.each import each
from tests.unit.test_house import ROOT

ABOUT = f"quicksand_tui-{__version__}.dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (found,) = place.iterdir()
    return found


def changed(
    wheel: Path,
    place: Path,
    *,
    without: str = "",
    replaced: tuple[str, bytes] = ("", b""),
    added: tuple[str, bytes] | None = None,
) -> Path:
    """A copy of the wheel with a file less, another one, or one more, and the same RECORD."""
    target = place / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            if name != without:
                new.writestr(name, replaced[1] if name == replaced[0] else old.read(name))
        if added is not None:
            new.writestr(*added)
    return target


def test_a_wheel_as_it_is_built_is_accepted(wheel: Path) -> None:
    release.inspect_wheel(wheel)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"without": "quicksand/py.typed"}, "RECORD names files"),
        ({"added": ("quicksand/more.py", b"")}, "RECORD does not say what quicksand/more.py"),
        ({"replaced": ("quicksand_tui/__init__.py", b"x = 1\n")}, "RECORD does not say"),
        ({"replaced": (f"{ABOUT}/METADATA", b"Metadata-Version: 2.4\nName: x\n")}, "metadata"),
        (
            {"replaced": (f"{ABOUT}/METADATA", b"Metadata-Version: 2.4\nName: x\nVersion: 9\n")},
            "is of version 9",
        ),
    ],
)
def test_a_wheel_that_was_changed_is_refused(
    wheel: Path, tmp_path: Path, change: dict[str, object], why: str
) -> None:
    with pytest.raises(ReleaseError, match=why):
        release.inspect_wheel(changed(wheel, tmp_path, **change))  # type: ignore[arg-type]


def test_a_wheel_that_is_too_large_is_refused(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "WHEEL_MAX", 1000)
    with pytest.raises(ReleaseError, match="more than 1000"):
        release.inspect_wheel(wheel)


@each("name", [".venv/x", "a/__pycache__/b.pyc", "guest-agent/target/x"])
def test_what_is_only_made_is_refused(name: str) -> None:
    with pytest.raises(ReleaseError, match="only made"):
        release._check_names(Path("x.whl"), {name}, ())


def test_a_version_is_released_once(wheel: Path, tmp_path: Path) -> None:
    into = tmp_path / "dist"
    release.publish([wheel], into)
    release.publish([wheel], into)
    sums = (into / release.SUMS).read_text().split()
    assert sums[1] == wheel.name and len(sums[0]) == 64
    other = tmp_path / wheel.name
    other.write_bytes(b"other")
    with pytest.raises(ReleaseError, match="with other bytes"):
        release.publish([other], into)
    assert (into / wheel.name).read_bytes() == wheel.read_bytes()


@each(
    ("heading", "why"),
    [
        ("## 0.0.9 (2026-01-01)", "but this is"),
        (f"## {__version__} (unreleased)", "put the date of the release there"),
        (f"## {__version__}1 (2026-01-01)", "but this is"),
    ],
)
def test_a_changelog_that_does_not_name_the_version_as_final_is_refused(
    heading: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n{heading}\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(ReleaseError, match=why):
        release.require_final(rehearse=False)


def test_what_is_not_committed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n## {__version__} (2026-01-01)\n")
    monkeypatch.setattr(release, "run", lambda argv, **_: "?? CHANGELOG.md\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(ReleaseError, match="not committed"):
        release.require_final(rehearse=False)
    release.require_final(rehearse=True)


def test_a_program_that_fails_ends_the_release() -> None:
    with pytest.raises(ReleaseError, match="failed with exit code 3"):
        release.run([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_tool_that_is_missing_is_named_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(release, "TOOLS", ("json", "no_such_tool"))
    with pytest.raises(ReleaseError, match="no_such_tool cannot be imported"):
        release.require_tools()
    monkeypatch.setattr(release, "TOOLS", ("json",))
    release.require_tools()
