"""What a recipe can say, and what is said of one that is wrong."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound
from quicksand.base.paths import Paths
from quicksand.disks.images.recipes import has_recipe, recipe_names
from quicksand.disks.images.resolve import ImageResolver
from quicksand_images import build
from quicksand_images.alpine import repositories
from quicksand_images.apk_keys import TrustedKeys
from quicksand_images.bases import system_facts
from quicksand_images.builder import suggested_options
from quicksand_images.handing import hand_files
from quicksand_images.recipe import (
    Layer,
    Recipe,
    find_recipe,
    load_recipe,
    read_packages,
    read_recipe,
)
from quicksand_images.rootfs import configuring_script
from quicksand_images.sources import proxies
from quicksand_images.tables import RecipeError, Table, find_line

from tests.each import each

TEN_LINES = """\
# mine
base = "agent"
packages = ["sqlite3", "htop"]
python = ["rich==14.2.0"]
steps = [
    "echo hello >/etc/motd",
]

[machine]
memory = "1G"
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return path

    return make


@each("name", recipe_names())
def test_every_recipe_that_comes_along_is_right_and_is_called_as_its_file(name: str) -> None:
    recipe = read_recipe(name)
    assert recipe.name == name
    if isinstance(recipe, Layer):
        assert has_recipe(recipe.base)


def test_ten_lines_make_an_image_of_ones_own(write: Write) -> None:
    recipe = read_recipe(write(TEN_LINES))
    assert isinstance(recipe, Layer)
    assert (recipe.name, recipe.version, recipe.base, recipe.arch) == ("mine", "1", "agent", None)
    assert recipe.packages == ("sqlite3", "htop")
    assert recipe.wheels == ("rich==14.2.0",)
    assert recipe.script == "echo hello >/etc/motd"
    assert recipe.network is False
    assert recipe.machine == {"memory": "1G"}


def test_a_script_beside_the_recipe_comes_before_its_steps(write: Write, tmp_path: Path) -> None:
    (tmp_path / "more.sh").write_text("echo first\n")
    recipe = read_recipe(write('base = "debian"\ncustomize = "more.sh"\nsteps = ["echo last"]\n'))
    assert isinstance(recipe, Layer)
    assert recipe.script.split("\n") == ["echo first", "", "echo last"]


@each(
    ("old", "new", "line", "field", "why"),
    [
        ('"htop"', '"htop; reboot"', 3, "packages", "'htop; reboot'"),
        ('"htop"', "7", 3, "packages", "not a list of texts"),
        ("packages", "package", 3, "package", "is unknown; did you mean packages?"),
        ('"rich==14.2.0"', '"rich"', 4, "python", "name each as"),
        ('"rich==14.2.0"', '"rich>=14"', 4, "python", "leaves the version open"),
        ('"rich==14.2.0"', '"rich==14.*"', 4, "python", "leaves the version open"),
        ('"rich==14.2.0"', '"rich @ file:///etc"', 4, "python", "name each as"),
        ('memory = "1G"', 'memory = "1X"', 10, "machine.memory", "'1X'"),
        ('memory = "1G"', "memory = 1", 10, "machine.memory", "cannot be 1"),
        ('memory = "1G"', 'mounts = "/"', 10, "machine.mounts", "is unknown"),
        ('base = "agent"', 'base = "../agent"', 2, "base", "'../agent'"),
        ('base = "agent"', 'base = "mine"', 2, "base", "is the image itself"),
        ('base = "agent"', 'base = "agent"\nnetwork = "yes"', 3, "network", "true nor false"),
        ('base = "agent"', 'base = "agent"\nbuild_space = "x"', 3, "build_space", "'x'"),
        ('base = "agent"', 'base = "agent"\narchitecture = "vax"', 3, "architecture", "vax"),
        ('    "echo hello >/etc/motd",\n', '    "echo",\n    "",\n', 7, "steps", "list of texts"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_field(
    write: Write, old: str, new: str, line: int, field: str, why: str
) -> None:
    assert old in TEN_LINES
    path = write(TEN_LINES.replace(old, new, 1))
    with pytest.raises(RecipeError) as caught:
        read_recipe(path)
    error = caught.value
    assert (error.path, error.field) == (path, field)
    assert why in str(error)
    # An empty text stands on no line of its own that could be told.
    assert error.line == line or (new.endswith('"",\n') and error.line in (5, 7))
    assert f"line {error.line}: {field}" in str(error)


def test_what_is_no_toml_is_said_with_its_line(write: Write) -> None:
    with pytest.raises(RecipeError, match="line 2"):
        read_recipe(write('base = "debian"\npackages = ["a" "b"]\n'))
    for content in (b"\xff\xfe", b"#" * (1024 * 1024 + 1)):
        path = write("")
        path.write_bytes(content)
        with pytest.raises(RecipeError, match="the recipe is wrong"):
            read_recipe(path)


def test_a_missing_field_is_said_with_the_line_of_its_table(write: Write) -> None:
    text = 'name = "x"\nversion = "1"\narchitecture = "amd64"\n[kernel]\n\n[system]\nsuite = "s"\n'
    with pytest.raises(RecipeError) as caught:
        read_recipe(write(text))
    assert (caught.value.field, caught.value.line) == ("system.mirror", 6)


def test_lines_are_found_by_every_way_of_writing_a_key() -> None:
    text = 'a = 1\n"b" = 2\n[c]\nd.e = 3\nf = """\ng = 4\n"""\ng = 5\n[ c . h ]\ni = { k = 1 }\n'
    for table, key, line in (
        ("", "a", 1),
        ("", "b", 2),
        ("c.d", "e", 4),
        ("c", "g", 8),
        ("c.h", "i", 10),
        ("c.h.i", "k", 10),
        ("c.h", "x", 9),
        ("", "x", 0),
    ):
        assert find_line(text, table, key) == line, (table, key)


def test_a_system_can_have_the_keys_of_its_mirror_in_it(write: Write) -> None:
    text = find_recipe("debian").read_text()
    key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n-----END PGP PUBLIC KEY BLOCK-----\n"
    own = text.replace('keyring = "debian-archive-keyring"', f'keys = """\n{key}"""')
    recipe = read_recipe(write(own))
    assert isinstance(recipe, Recipe)
    assert (recipe.system.keys, recipe.system.keyring) == (key, "")
    with pytest.raises(RecipeError, match=r"system\.keys are no OpenPGP keys"):
        read_recipe(write(own.replace("BEGIN PGP PUBLIC", "BEGIN PGP PRIVATE")))
    with pytest.raises(RecipeError, match=r"system\.keyring is missing"):
        read_recipe(write(text.replace('keyring = "debian-archive-keyring"', "")))


def test_the_recipe_of_alpine_has_its_mirror_and_keys_and_its_kernel_boots_without_openrc() -> None:
    recipe = load_recipe("alpine")
    assert repositories(recipe.system) == [
        "https://dl-cdn.alpinelinux.org/alpine/v3.23/main",
        "https://dl-cdn.alpinelinux.org/alpine/v3.23/community",
    ]
    TrustedKeys(recipe.system.keys)
    assert recipe.system.keys.count("BEGIN PUBLIC KEY") == 2  # for each architecture
    assert "quicksand.init=none" in recipe.kernel.cmdline.split()
    assert load_recipe("alpine", "arm64").arch is Architecture.ARM64
    script = configuring_script(recipe)
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    assert "apt" not in script and "dpkg" not in script
    # What a manifest tells of it is read back as strictly.
    facts = Table(Path("manifest.json"), "", system_facts(recipe.system), "system")
    assert read_packages(facts).keys == recipe.system.keys


@each(
    ("old", "new", "why"),
    [
        (
            'distribution = "alpine"',
            'distribution = "gentoo"',
            "distribution can be debian or ubuntu or alpine",
        ),
        ('suite = "v3.23"', 'suite = "v3.23"\nkeyring = "x-keys"', "keyring has no meaning"),
        (
            'suite = "v3.23"',
            'suite = "v3.23"\nsecurity_mirror = "https://x/"',
            "security_mirror has no meaning",
        ),
        ("BEGIN PUBLIC KEY", "BEGIN PGP PUBLIC KEY BLOCK", "keys are no RSA keys"),
        ('mirror = "https:', 'mirror = "ftp:', "mirror cannot be"),
    ],
)
def test_what_is_wrong_with_an_alpine_is_said_with_its_line(
    write: Write, old: str, new: str, why: str
) -> None:
    text = find_recipe("alpine").read_text()
    assert old in text
    with pytest.raises(RecipeError, match=f"line [0-9]+: system.{why}") as caught:
        read_recipe(write(text.replace(old, new, 1)))
    assert caught.value.line > 0


def test_several_scripts_are_run_in_their_order(write: Write, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("echo a\n")
    (tmp_path / "b.sh").write_text("echo b\n")
    layer = read_recipe(write('base = "debian"\ncustomize = ["b.sh", "a.sh"]\nsteps = ["echo c"]'))
    done = subprocess.run(
        ["sh", "-eu"], input=layer.script, text=True, capture_output=True, check=True
    )
    assert done.stdout.split() == ["b", "a", "c"]
    with pytest.raises(
        RecipeError, match=r"line 2: customize is not the name of a file .*'\.\./x'"
    ):
        read_recipe(write('base = "debian"\ncustomize = ["b.sh", "../x"]\n'))
    (tmp_path / "a.sh").write_text("#" * 40_000)
    with pytest.raises(RecipeError, match="more than 65536 bytes"):
        read_recipe(write('base = "debian"\ncustomize = ["a.sh", "a.sh"]\n'))


def test_files_beside_the_recipe_are_put_into_the_guest(write: Write, tmp_path: Path) -> None:
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "a.py").write_bytes(b"\0a")
    (tmp_path / "tree" / ".hidden").touch()
    (tmp_path / "one").write_text("1")
    files = '[files]\n"/usr/lib/x" = "tree"\n"/etc/one.conf" = "one"\n'
    layer = read_recipe(write(f'base = "debian"\n{files}'))
    assert isinstance(layer, Layer)
    assert layer.files == (("/usr/lib/x/a.py", b"\0a"), ("/etc/one.conf", b"1"))

    handed = tmp_path / "handed"
    handed.mkdir()
    before = os.umask(0o077)
    try:
        hand_files(layer.files, handed)
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(handed)): path.stat().st_mode & 0o777 for path in handed.rglob("*")
    }
    directories = ("files", "files/usr", "files/usr/lib", "files/usr/lib/x", "files/etc")
    assert modes == {
        **dict.fromkeys(directories, 0o755),
        "files/usr/lib/x/a.py": 0o644,
        "files/etc/one.conf": 0o644,
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('"usr/x" = "one"', "no absolute path"),
        ('"/usr/../x" = "one"', "no absolute path"),
        ('"/" = "one"', "no absolute path"),
        ('"/x" = "../one"', "beside the recipe"),
        ('"/x" = 1', "beside the recipe"),
        ('"/x" = "absent"', "No such file"),
        ('"/x" = "large"', "more than 1048576 bytes"),
    ],
)
def test_files_of_a_recipe_that_cannot_be_are_told(
    write: Write, tmp_path: Path, line: str, why: str
) -> None:
    (tmp_path / "one").touch()
    (tmp_path / "large").write_bytes(bytes(1024 * 1024 + 1))
    with pytest.raises(RecipeError, match=f"line [23]: files.*{why}"):
        read_recipe(write(f'base = "debian"\n[files]\n{line}\n'))


def test_who_asks_for_a_whole_system_gets_no_layer(write: Write) -> None:
    with pytest.raises(ImageError, match="is a layer on 'agent'"):
        load_recipe(write(TEN_LINES))


def test_a_layer_suggests_what_its_base_does_and_its_own_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = recipes_in(tmp_path, monkeypatch)
    (place / "low.toml").write_text('base = "debian-desktop"\n[machine]\ncpus = 4\n')
    (place / "high.toml").write_text('base = "low"\n[machine]\nmemory = "3G"\n')
    assert suggested_options("high") == {"memory": "3G", "cpus": 4}


def recipes_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the only recipes."""
    place = tmp_path / "recipes"
    place.mkdir()
    for module in ("quicksand.disks.images.recipes", "quicksand_images.recipe"):
        monkeypatch.setattr(f"{module}.recipe_places", lambda: (place,))
    return place


async def test_recipes_that_lie_on_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, places: Paths
) -> None:
    place = recipes_in(tmp_path, monkeypatch)
    (place / "egg.toml").write_text('base = "hen"\n')
    (place / "hen.toml").write_text('base = "egg"\n')
    with pytest.raises(ImageError, match="egg on hen on egg: an image cannot be based on itself"):
        await build.ensure_image("egg", store=ImageResolver(places).store)


async def test_a_base_that_nobody_knows_is_named(write: Write, places: Paths) -> None:
    with pytest.raises(ImageNotFound, match="'nothing', the base of 'mine'") as caught:
        await build.build_image(write('base = "nothing"\n'), store=ImageResolver(places).store)
    assert "debian" in caught.value.hint


def test_a_recipe_alone_makes_its_name_that_of_an_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, places: Paths
) -> None:
    place = recipes_in(tmp_path, monkeypatch)
    assert not ImageResolver(places).has("novel")
    (place / "novel.toml").write_text('base = "debian"\n')
    assert recipe_names() == ("novel",)
    assert has_recipe("novel")
    assert ImageResolver(places).has("novel")
    assert not has_recipe("../novel")


def test_the_recipes_in_the_users_guide_are_right(write: Write) -> None:
    guide = Path(__file__).parents[3] / "docs" / "user-guide" / "images.md"
    examples = re.findall(r"^```toml\n(.*?)^```$", guide.read_text(), re.DOTALL | re.MULTILINE)
    assert len(examples) == 2
    for example in examples:
        recipe = read_recipe(write(example))
        assert isinstance(recipe, Layer)
        assert len([line for line in example.splitlines() if line]) <= 10
        subprocess.run(["sh", "-n"], input=recipe.script, text=True, check=True)


def test_a_recipe_for_two_architectures_says_what_differs(write: Write) -> None:
    text = find_recipe("debian-12").read_text()
    both = text.replace('architecture = "amd64"', 'architecture = ["amd64", "arm64"]')
    path = write(f'{both}\n[arm64.kernel]\npackage = "linux-image-cloud-arm64"\n')
    usual, other = load_recipe(path), load_recipe(path, "arm64")
    assert usual.arch is Architecture.host()
    assert (other.arch, other.kernel.package) == (Architecture.ARM64, "linux-image-cloud-arm64")
    assert other.kernel.boot_modules == usual.kernel.boot_modules
    with pytest.raises(ImageError, match="is for amd64, not for arm64"):
        load_recipe(write(text), "arm64")
    with pytest.raises(RecipeError, match=r"arm64\.colonel replaces nothing"):
        load_recipe(write(f"{both}\n[arm64.colonel]\nx = 1\n"), "arm64")
    with pytest.raises(RecipeError, match="architecture names none"):
        load_recipe(write(text.replace('architecture = "amd64"', "architecture = []")))


def test_a_layer_is_for_the_architecture_that_is_asked_for(write: Write) -> None:
    assert read_recipe(write('base = "debian"\n'), "arm64").arch is Architecture.ARM64
    with pytest.raises(ImageError, match="is for amd64, not for arm64"):
        read_recipe(write('base = "debian"\narchitecture = "amd64"\n'), "arm64")


def test_steps_with_the_network_get_the_proxies_of_the_host() -> None:
    environ = {"http_proxy": "http://p:1", "NO_PROXY": "x", "HTTPS_PROXY": "", "HOME": "/root"}
    assert proxies(environ) == {"http_proxy": "http://p:1", "NO_PROXY": "x"}


@each(
    ("address", "told"),
    [
        ("http://user:secret@p:1", "http://p:1"),
        ("http://user:s@cr/et@p:1/", "http://p:1/"),
        ("user:sec://ret@p:1", "p:1"),
        ("socks5h://user@[::1]:1", "socks5h://[::1]:1"),
        ("p:1", "p:1"),
    ],
)
def test_no_guest_gets_the_password_of_a_proxy(address: str, told: str) -> None:
    assert proxies({"HTTPS_PROXY": address}) == {"HTTPS_PROXY": told}
