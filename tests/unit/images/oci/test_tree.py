"""Layers as records: whiteouts, links, and names that would lead out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import ImageError
from quicksand_images.oci import tree as tree_module
from quicksand_images.oci.tar import Kind, Member
from quicksand_images.oci.tree import DEPTH_MAX, HOUSEKEEPING, OPAQUE, Tree, kept_xattrs, split

from tests.each import each


def member(name: str, kind: Kind = Kind.FILE, target: str = "", **more: object) -> Member:
    given = {"mode": 0o755, "uid": 0, "gid": 0, "mtime": 1, **more}
    return Member(name=name, kind=kind, target=target, **given)  # type: ignore[arg-type]


def made(*layers: list[Member]) -> Tree:
    """A tree of layers whose files have their numbers, such as 1.0, as their contents."""
    tree = Tree()
    for number, layer in enumerate(layers):
        for place, one in enumerate(layer):
            tree.apply(one, Path(f"{number}.{place}") if one.kind is Kind.FILE else None)
        tree.end_layer()
    return tree


def names(tree: Tree) -> list[str]:
    return [path for path, _ in tree.walk() if path]


def d(name: str) -> Member:
    return member(name, Kind.DIRECTORY)


def link(name: str, target: str) -> Member:
    return member(name, Kind.SYMLINK, target)


def hard(name: str, target: str) -> Member:
    return member(name, Kind.LINK, target)


def content(tree: Tree, path: str) -> str:
    node = tree.find(path)
    assert node is not None
    return str(node.content)


# --- whiteouts


def test_a_whiteout_hides_a_file_and_a_directory_with_all_that_is_in_it() -> None:
    tree = made(
        [d("a"), member("a/x"), member("b"), member("c")], [member(".wh.a"), member(".wh.b")]
    )
    assert names(tree) == ["/c"]


def test_a_whiteout_hides_nothing_of_its_own_layer_wherever_it_stands() -> None:
    lower = [d("a"), member("a/old")]
    for upper in (
        [member(".wh.a"), member("a/new")],
        [member("a/new"), member(".wh.a")],
        [member("a/.wh..wh..opq"), member("a/new")],
        [member("a/new"), member("a/.wh..wh..opq")],
    ):
        assert names(made(lower, upper)) == ["/a", "/a/new"]


def test_an_opaque_directory_stays_and_loses_what_the_layers_below_have_in_it() -> None:
    tree = made([d("a"), member("a/x"), d("a/b"), member("a/b/y")], [member("a/" + OPAQUE)])
    assert names(tree) == ["/a"]


def test_a_whiteout_in_a_directory_that_is_not_there_makes_none() -> None:
    assert names(made([member("no/such/.wh.x"), member("no/" + OPAQUE)])) == []


@each("name", [".wh.", ".wh..", ".wh...", "a/.wh..", "a/.wh..."])
def test_a_whiteout_that_names_a_parent_or_nothing_is_refused(name: str) -> None:
    with pytest.raises(ImageError, match="names no file of its directory"):
        made([d("a"), member("a/x")], [member(name)])


def test_a_whiteout_cannot_lead_out_or_be_a_directory() -> None:
    with pytest.raises(ImageError, match="leads out"):
        made([member("../.wh.x")])
    with pytest.raises(ImageError, match="lies in a whiteout"):
        made([member(".wh.a/x")])


def test_a_whiteout_behind_a_link_hides_what_is_inside_the_image() -> None:
    tree = made([d("usr/lib"), member("usr/lib/x"), link("lib", "usr/lib")], [member("lib/.wh.x")])
    assert names(tree) == ["/lib", "/usr", "/usr/lib"]


def test_notes_of_storage_drivers_are_left_out() -> None:
    tree = made([member(HOUSEKEEPING + "aufs"), d(HOUSEKEEPING + "plnk"), member(".wh..wh.plnk/1")])
    assert names(tree) == []


# --- links and replaced files


def test_files_are_written_through_links_of_lower_layers_within_the_image() -> None:
    tree = made([d("usr/lib"), link("lib", "usr/lib")], [member("lib/x")])
    assert names(tree) == ["/lib", "/usr", "/usr/lib", "/usr/lib/x"]


@each("target", ["/etc", "../../../../etc", "/../etc", "a/../../../etc"])
def test_a_directory_that_became_a_link_out_leads_to_the_images_own_files(target: str) -> None:
    """A layer replaces a directory by a link, and the next one writes through it."""
    tree = made([d("a"), member("a/x")], [link("b", target)], [member("b/passwd")])
    assert "/etc/passwd" in names(tree)
    assert content(tree, "/etc/passwd") == "2.0"


def test_a_link_to_nothing_leads_to_a_new_directory_within_the_image() -> None:
    assert names(made([link("b", "/new/dir"), member("b/x")])) == [
        "/b",
        "/new",
        "/new/dir",
        "/new/dir/x",
    ]


@each("target", ["/ok/" + "x" * 256, "/é/" + "é" * 128, ".wh.a"])
def test_a_link_makes_no_directory_with_a_name_that_cannot_be(target: str) -> None:
    with pytest.raises(ImageError, match="cannot be the name of a file"):
        made([member("p"), link("l", target), d("l/x")])


def test_links_that_lead_in_a_circle_are_refused() -> None:
    with pytest.raises(ImageError, match="too many links"):
        made([link("a", "b"), link("b", "a"), member("a/x")])


def test_a_file_is_no_directory() -> None:
    with pytest.raises(ImageError, match="below something that is no directory"):
        made([member("a"), member("a/x")])


def test_another_kind_of_file_replaces_what_is_there() -> None:
    tree = made([d("a"), member("a/x"), member("b")], [member("a"), d("b"), member("b/y")])
    assert names(tree) == ["/a", "/b", "/b/y"]
    assert names(made([link("a", "/")], [d("a"), member("a/x")])) == ["/a", "/a/x"]


def test_a_directory_keeps_its_files_when_it_is_described_again() -> None:
    tree = made([d("a"), member("a/x")], [member("a", Kind.DIRECTORY, mode=0o700, uid=7)])
    node = tree.find("/a")
    assert node is not None
    assert (node.mode, node.uid, sorted(node.children)) == (0o700, 7, ["x"])


def test_of_a_name_that_occurs_twice_the_last_one_counts() -> None:
    assert content(made([member("a"), member("a"), member("./a"), member("/a")]), "/a") == "0.3"


def test_hard_links_share_their_file_until_one_is_replaced() -> None:
    tree = made([member("a"), hard("b", "a"), hard("c", "/a")], [member("a")])
    assert (content(tree, "/a"), content(tree, "/b"), content(tree, "/c")) == ("1.0", "0.0", "0.0")
    node = tree.find("/b")
    assert node is tree.find("/c")
    assert node is not None
    assert node.names == 2


def test_a_hard_link_to_itself_or_into_what_it_replaces_keeps_the_file() -> None:
    assert content(made([member("a"), hard("a", "a")]), "/a") == "0.0"
    dropped: list[Path] = []
    tree = Tree(dropped.append)
    tree.apply(member("a/x"), Path("x"))
    tree.apply(hard("a", "a/x"))
    assert (content(tree, "/a"), dropped) == ("x", [])


@each(
    ("target", "why"),
    [("nothing", "not in the image"), ("../etc/passwd", "leads out"), ("dir", "to a directory")],
)
def test_a_hard_link_elsewhere_is_refused(target: str, why: str) -> None:
    with pytest.raises(ImageError, match=why):
        made([d("dir"), hard("a", target)])


def test_a_hard_link_behind_a_link_out_leads_to_the_images_own_file() -> None:
    with pytest.raises(ImageError, match="not in the image"):
        made([link("out", "/etc"), hard("a", "out/passwd")])


def test_a_hard_link_can_have_a_link_itself() -> None:
    node = made([link("a", "/etc/shadow"), hard("b", "a")]).find("/b", last=False)
    assert node is not None
    assert node.kind is Kind.SYMLINK


# --- names


@each("name", ["..", "a/../../b", "a/..", "../a", "/../a"])
def test_names_that_lead_out_are_refused(name: str) -> None:
    with pytest.raises(ImageError, match="leads out"):
        made([member(name)])


def test_a_slash_at_the_beginning_means_the_images_root() -> None:
    assert names(made([member("/etc/passwd"), member("//x"), member("./y")])) == [
        "/etc",
        "/etc/passwd",
        "/x",
        "/y",
    ]


@each("name", ["a\0b", "x" * 256, "é" * 128, "/".join(["abc"] * 800)])
def test_names_that_cannot_be_are_refused(name: str) -> None:
    with pytest.raises(ImageError, match="name"):
        made([member(name)])


def test_directories_that_lie_too_deep_are_refused_also_by_way_of_links() -> None:
    deep = "/".join("d" * (DEPTH_MAX - 2))
    with pytest.raises(ImageError, match="deeper"):
        made([member("/".join("d" * (DEPTH_MAX + 1)))])
    with pytest.raises(ImageError, match="directories"):
        made([d(deep), link("l", deep), member("l/a/b/c/d")])


def test_the_root_can_only_be_a_directory() -> None:
    tree = made([member("./", Kind.DIRECTORY, mode=0o711)])
    assert tree.root.mode == 0o711
    for kind in (Kind.FILE, Kind.SYMLINK, Kind.LINK):
        with pytest.raises(ImageError, match="root directory"):
            made([member("/", kind, "x")])


def test_links_that_lead_nowhere_and_devices_that_cannot_be_are_refused() -> None:
    for target in ("", "x" * 4096, "a\0b"):
        with pytest.raises(ImageError, match="leads nowhere"):
            made([link("a", target)])
    for device in ((4096, 0), (0, 1 << 16)):
        with pytest.raises(ImageError, match="impossible device"):
            made([member("a", Kind.CHARACTER, device=device)])


def test_work_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "STEPS_MAX", 10_000)
    with pytest.raises(ImageError, match="too long"):
        made([link("a", "./" * 2000), *(member("a/x") for _ in range(20))])
    files = [member(f"a/{number}") for number in range(1000)]
    with pytest.raises(ImageError, match="too long"):
        made([*files, *(member("a/" + OPAQUE) for _ in range(20))])


def test_directories_that_only_names_and_links_make_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree_module, "ENTRIES_MAX", 1000)
    deep = "/d" * 190
    with pytest.raises(ImageError, match="more than 1000 files"):
        made([member(f"{number}{deep}/x") for number in range(6)])
    hidden = "/".join(f"{number}/.." for number in range(300))
    with pytest.raises(ImageError, match="more than 1000 files"):
        made([one for n in "abcd" for one in (d(n), link(f"{n}/l", f"{hidden}/z"), d(f"{n}/l/x"))])


# --- xattrs


def test_capabilities_and_xattrs_of_users_are_kept_and_a_hosts_are_not() -> None:
    xattrs = {
        "security.capability": b"\1",
        "user.a": b"b",
        "security.selinux": b"x",
        "trusted.overlay.opaque": b"y",
        "system.posix_acl_access": b"z",
    }
    assert kept_xattrs(member("a", xattrs=xattrs)) == {"security.capability": b"\1", "user.a": b"b"}


@each(
    "xattrs",
    [{"user.a": b"x" * 4000}, {"user." + "a" * 300: b""}, {'user.a"b': b""}, {"user.é": b""}],
)
def test_xattrs_that_the_file_system_cannot_hold_are_refused(xattrs: dict[str, bytes]) -> None:
    with pytest.raises(ImageError, match="xattr"):
        made([member("a", xattrs=xattrs)])


# --- against a model

DIRECTORIES, FILES = ("d", "e"), ("f", "g")
above = st.lists(st.sampled_from(DIRECTORIES), max_size=3)
leaves = st.sampled_from([*FILES, "x"])


@st.composite
def entries(draw: st.DrawFn) -> Member:
    parts = draw(above)
    shape = draw(st.sampled_from(["file", "directory", "whiteout", "opaque"]))
    match shape:
        case "file":
            return member("/".join([*parts, draw(leaves)]))
        case "directory":
            last = draw(st.sampled_from([*DIRECTORIES, "x"]))
            return d("/".join([*parts, last]))
        case "whiteout":
            hidden = draw(st.sampled_from([*DIRECTORIES, *FILES, "x"]))
            return member("/".join([*parts, f".wh.{hidden}"]))
        case _:
            return member("/".join([*parts, OPAQUE]))


Model = dict[tuple[str, ...], str]


def apply_to_model(state: Model, layer: list[Member], number: int) -> Model:
    """What the specification says: first the whiteouts, which hide what is below, then the rest."""
    kept = dict(state)
    for one in layer:
        *parts, name = split(one.name)
        if name == OPAQUE:
            kept = {
                p: v
                for p, v in kept.items()
                if p[: len(parts)] != tuple(parts) or len(p) == len(parts)
            }
        elif name.startswith(".wh."):
            gone = (*parts, name.removeprefix(".wh."))
            kept = {p: v for p, v in kept.items() if p[: len(gone)] != gone}
    for place, one in enumerate(layer):
        path = tuple(split(one.name))
        if path[-1].startswith(".wh."):
            continue
        for depth in range(1, len(path)):
            kept.setdefault(path[:depth], "directory")
        kept[path] = "directory" if one.kind is Kind.DIRECTORY else f"{number}.{place}"
    return kept


@given(st.lists(st.lists(entries(), max_size=8), max_size=4))
def test_layers_make_what_the_specification_says(layers: list[list[Member]]) -> None:
    model: Model = {}
    for number, layer in enumerate(layers):
        model = apply_to_model(model, layer, number)
    tree = made(*layers)
    found = {
        tuple(path[1:].split("/")): "directory" if node.is_directory else str(node.content)
        for path, node in tree.walk()
        if path
    }
    assert found == model


wild_parts = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "..",
        ".",
        "",
        ".wh.a",
        ".wh.b",
        ".wh..wh..opq",
        ".wh..",
        ".wh..wh.x",
        "é",
        "\udcff",
    ]
)
wild_paths = st.lists(wild_parts, min_size=1, max_size=5).map("/".join)


@given(
    st.lists(
        st.lists(
            st.builds(
                member,
                wild_paths,
                st.sampled_from([Kind.FILE, Kind.LINK, Kind.SYMLINK, Kind.DIRECTORY, Kind.FIFO]),
                wild_paths,
            ),
            max_size=12,
        ),
        max_size=4,
    )
)
def test_whatever_comes_is_refused_or_leaves_whole_records(layers: list[list[Member]]) -> None:
    dropped: list[Path] = []
    kept: set[Path] = set()
    tree = Tree(dropped.append)
    for number, layer in enumerate(layers):
        for place, one in enumerate(layer):
            content = Path(f"{number}.{place}") if one.kind is Kind.FILE else None
            try:
                tree.apply(one, content)
            except ImageError:
                continue
            if content is not None:
                kept.add(content)
        tree.end_layer()
    counted: dict[int, int] = {}
    for path, node in tree.walk():
        assert not {"..", ".", ""} & set(path.split("/")[1:])
        assert ".wh." not in path
        counted[id(node)] = counted.get(id(node), 0) + 1
    held = {node.content for _, node in tree.walk() if node.content is not None}
    assert all(node.names == counted[id(node)] for _, node in tree.walk())
    assert len(dropped) == len(set(dropped))
    assert not held & set(dropped)
    assert kept <= held | set(dropped)
