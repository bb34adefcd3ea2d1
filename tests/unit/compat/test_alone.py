"""quicksand_core of quicksand-tui is never beside the published packages whose files are its."""

from __future__ import annotations

import shutil
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from quicksand.disks.packages.installed import LABEL

from tests.unit.compat.shims import CORE, PROJECT, ROOT, install, run

IMPORT = "import quicksand_core; print(quicksand_core.__version__, quicksand_core.__file__)"
OURS = PROJECT["version"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with our distribution, as pip installs it."""
    place = tmp_path / "site"
    shutil.copytree(CORE / "quicksand_core", place / "quicksand_core")
    install(place, "quicksand-core", OURS)
    return place


def test_alone_it_is_imported_and_tells_its_version(site: Path) -> None:
    done = run("-c", IMPORT, path=(site,))
    assert done.stdout.split() == [OURS, str(site / "quicksand_core/__init__.py")], done.stderr


def test_its_version_is_what_image_packages_ask_for_and_no_published_one() -> None:
    ours = Version(OURS)
    assert ours in SpecifierSet(">=0.14.0,<0.15.0")
    assert ours.public == "0.14.0" and ours.local is not None
    assert LABEL in OURS and OURS.partition(LABEL)[2] == version("quicksand-tui")
    assert PROJECT["dependencies"] == [f"quicksand-tui=={version('quicksand-tui')}"]


def test_its_license_and_python_are_those_of_the_whole() -> None:
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert PROJECT["requires-python"] == whole["requires-python"]
    assert (CORE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_the_published_core_beside_it_is_refused_with_both_named(
    site: Path, tmp_path: Path, is_elsewhere: bool
) -> None:
    other = tmp_path / "other" if is_elsewhere else site
    install(other, "quicksand-core", "0.14.0")
    done = run("-c", IMPORT, path=(site, other))
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"ImportError: the package quicksand_core of quicksand-tui ({site}")
    assert f"the published quicksand-core 0.14.0 ({other}" in said
    assert "pip uninstall quicksand-core" in said


@pytest.mark.parametrize(
    ("name", "package"), [("quick-sandbox", "quicksand"), ("quicksand-smb", "quicksand_smb")]
)
def test_a_published_package_that_has_taken_the_place_of_the_engine_is_refused(
    site: Path, name: str, package: str
) -> None:
    install(site, name, "0.13.0", package)
    done = run("-c", IMPORT, path=(site,))
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert f"the published {name} 0.13.0" in said and f"its package {package} has taken" in said
    assert f"pip uninstall {name}" in said


def test_a_published_package_that_python_does_not_take_is_no_harm(
    site: Path, tmp_path: Path
) -> None:
    install(tmp_path / "late", "quicksand-smb", "0.5.3", "quicksand_smb")
    late = tmp_path / "late"
    code = f"import sys; sys.path.append({str(late)!r}); {IMPORT}"
    done = run("-c", code, path=(site,))
    assert done.returncode == 0, done.stderr


def test_without_the_engine_it_says_what_it_needs(site: Path) -> None:
    code = f"import sys; sys.path = [{str(site)!r}] + [p for p in sys.path if 'python3' in p]"
    code += f"; sys.path = [p for p in sys.path if 'site-packages' not in p]; {IMPORT}"
    done = run("-S", "-c", code, path=(site,))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("install quicksand-tui")
