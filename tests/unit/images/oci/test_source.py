"""Finding an image in a directory or an archive, and what its documents may say."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageError, ImageNotFound
from quicksand_images.oci.documents import LAYERS_MAX
from quicksand_images.oci.layers import pieces_of
from quicksand_images.oci.places import open_place
from quicksand_images.oci.reference import Reference, find_source, parse_reference
from quicksand_images.oci.source import FoundImage, find_image

from tests.container_images import (
    CONFIG,
    INDEX,
    LAYER,
    Image,
    descriptor,
    docker_files,
    file,
    layout_files,
    sha256,
    symlink,
    tar,
    write_archive,
    write_directory,
)
from tests.each import each

X86 = Architecture.X86_64
ONE, TWO = tar(file("one")), tar(file("two"))


def image(**config: Any) -> Image:
    return Image([ONE, TWO], arch="amd64", **config)


def found(source: Path, tmp_path: Path, pick: str = "") -> FoundImage:
    work = tmp_path / f"work{len(list(tmp_path.iterdir()))}"
    work.mkdir()
    return find_image(open_place(source, work), X86, pick=pick)


def layout(tmp_path: Path, one: Image, **entry: Any) -> Path:
    return write_directory(tmp_path / "layout", layout_files((one, one.entry(**entry))))


def ids(one: FoundImage) -> list[str]:
    return [layer.diff_id for layer in one.layers]


# --- forms


def test_an_image_is_found_in_every_form(tmp_path: Path) -> None:
    one = image(Cmd=["sh"], User="7")
    oci = layout_files((one, one.entry("1.0")))
    both = {**docker_files(("app:1.0", one)), **oci}
    places = [
        write_directory(tmp_path / "layout", oci),
        write_archive(tmp_path / "oci.tar", oci),
        write_archive(tmp_path / "save.tar", both),
        write_archive(tmp_path / "old.tar", docker_files(("app:1.0", one))),
    ]
    packed = tmp_path / "packed.tar.gz"
    packed.write_bytes(gzip.compress(places[2].read_bytes()))
    for place in (*places, packed):
        there = found(place, tmp_path)
        assert ids(there) == [sha256(ONE), sha256(TWO)]
        assert (there.config.cmd, there.config.user) == (("sh",), "7")


def test_a_layer_that_occurs_twice_may_be_a_link_in_an_old_archive(tmp_path: Path) -> None:
    one = Image([ONE, ONE], arch="amd64")
    files = docker_files(("app:1", one))
    first, second = json.loads(files["manifest.json"])[0]["Layers"]
    del files[second]
    members = [file(name, data) for name, data in files.items()]
    path = tmp_path / "old.tar"
    path.write_bytes(tar(*members, symlink(second, f"../{first}")))
    assert ids(found(path, tmp_path)) == [sha256(ONE)] * 2
    path.write_bytes(tar(*members, symlink(second, "../../../etc/passwd")))
    with pytest.raises(ImageError, match="not there"):
        found(path, tmp_path)


def test_of_several_images_one_is_picked_by_its_name(tmp_path: Path) -> None:
    one, two = image(Cmd=["one"]), image(Cmd=["two"])
    old = write_archive(tmp_path / "o.tar", docker_files(("x/app:1", one), ("x/app:2", two)))
    oci = write_directory(
        tmp_path / "l", layout_files((one, one.entry("x/app:1")), (two, two.entry("x/app:2")))
    )
    for place in (old, oci):
        with pytest.raises(ImageError, match=r"several images: x/app:1, x/app:2"):
            found(place, tmp_path)
        for pick in ("x/app:2", "app:2", "2"):
            assert found(place, tmp_path, pick).config.cmd == ("two",)
        with pytest.raises(ImageError, match="no image '3'"):
            found(place, tmp_path, "3")


def test_of_several_variants_the_one_for_most_processors_is_chosen(tmp_path: Path) -> None:
    new, old = image(Cmd=["v3"]), image(Cmd=["any"])
    entries = [
        (new, {**new.entry(), "platform": {**new.platform(), "variant": "v3"}}),
        (old, {**old.entry(), "platform": old.platform()}),
        (new, {**new.entry(), "platform": {**new.platform(), "variant": "v2"}}),
    ]
    root = write_directory(tmp_path / "l", layout_files(*entries))
    assert found(root, tmp_path).config.cmd == ("any",)


def test_a_config_need_not_be_called_by_its_digest(tmp_path: Path) -> None:
    """As jib and others write it; nothing says its digest then."""
    files = docker_files(("app:1", image()))
    listing = json.loads(files["manifest.json"])
    files["config.json"] = files.pop(listing[0]["Config"])
    listing[0]["Config"] = "config.json"
    files["manifest.json"] = json.dumps(listing).encode()
    assert found(write_archive(tmp_path / "a.tar", files), tmp_path).name == "app:1"


def test_the_platform_is_chosen_from_an_index_within_an_index(tmp_path: Path) -> None:
    fits, other = image(Cmd=["fits"]), Image([ONE], arch="arm64")
    entries = [
        {**other.entry(), "platform": other.platform()},
        {**fits.entry(), "platform": fits.platform()},
        {**fits.entry(), "platform": {"os": "unknown", "architecture": "unknown"}},
    ]
    inner = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
    fits.blobs[sha256(inner)] = inner
    files = layout_files((fits, descriptor(INDEX, inner)), (other, other.entry()))
    outer = {"schemaVersion": 2, "manifests": [descriptor(INDEX, inner)]}
    files["index.json"] = json.dumps(outer).encode()
    assert found(write_directory(tmp_path / "l", files), tmp_path).config.cmd == ("fits",)


# --- what is refused


def test_what_is_no_image_is_refused_with_what_would_be_one(tmp_path: Path) -> None:
    write_archive(tmp_path / "export.tar", {"etc/passwd": b"root"})
    with pytest.raises(ImageError, match="neither index"):
        found(tmp_path / "export.tar", tmp_path)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ImageError, match="neither a directory nor a tar archive"):
        found(tmp_path / "text", tmp_path)
    empty = write_directory(tmp_path / "empty", {"index.json": b'{"manifests": []}'})
    with pytest.raises(ImageError, match="no image in it"):
        found(empty, tmp_path)


def test_an_image_for_another_machine_is_refused_by_its_name(tmp_path: Path) -> None:
    arm = Image([ONE], arch="arm64")
    with pytest.raises(ImageError, match="it is for linux/arm64, and not for linux/amd64"):
        found(layout(tmp_path, arm), tmp_path)
    windows = image()
    windows.config["os"] = "windows"
    with pytest.raises(ImageError, match="it is for windows/amd64"):
        found(write_archive(tmp_path / "w.tar", docker_files(("w", windows))), tmp_path)
    with pytest.raises(ImageError, match=r"no image for linux/amd64; it has linux/arm64"):
        files = layout_files(
            (arm, {**arm.entry(), "platform": arm.platform()}),
            (arm, {**arm.entry(), "platform": arm.platform()}),
        )
        found(write_directory(tmp_path / "two", files), tmp_path)


def spoil_manifest(**fields: Any) -> Callable[[Image], None]:
    return lambda one: one.manifest.update(fields)


def spoil_layer(**fields: Any) -> Callable[[Image], None]:
    return lambda one: one.layers[0].update(fields)


def spoil_config(path: str, value: Any) -> Callable[[Image], None]:
    def spoil(one: Image) -> None:
        *above, last = path.split(".")
        table = one.config
        for name in above:
            table = table[name]
        table[last] = value

    return spoil


@each(
    ("spoil", "why"),
    [
        (spoil_manifest(schemaVersion=1), "unknown kind"),
        (
            spoil_manifest(mediaType="application/vnd.docker.distribution.manifest.v1+json"),
            "unknown",
        ),
        (spoil_manifest(layers=[]), "no layers"),
        (spoil_manifest(layers="x"), "layers is no list"),
        (spoil_manifest(layers=[{"mediaType": LAYER}] * (LAYERS_MAX + 1)), "513 layers"),
        (spoil_manifest(config=None), "no JSON object"),
        (spoil_manifest(config=descriptor("application/vnd.cncf.helm.config.v1+json", b"")), "run"),
        (spoil_layer(mediaType="application/vnd.oci.image.layer.v1.tar+encrypted"), "unknown kind"),
        (
            spoil_layer(mediaType="application/vnd.oci.image.layer.nondistributable.v1.tar"),
            "foreign",
        ),
        (spoil_layer(urls=["https://example.com/layer"]), "foreign"),
        (spoil_layer(digest="sha512:" + "a" * 128), "no SHA-256"),
        (spoil_layer(digest="sha256:../../../etc/passwd"), "no SHA-256"),
        (spoil_layer(digest="sha256:" + "0" * 64), "not there"),
        (spoil_layer(size=7), "7 were said"),
        (spoil_layer(size=-1), "-1 bytes"),
        (spoil_layer(size=2**62), "bytes"),
        (spoil_layer(size="7"), "size"),
        (spoil_config("rootfs.diff_ids", ["sha256:" + "0" * 64]), "its config says 1"),
        (spoil_config("rootfs.diff_ids", ["x", "y"]), "no SHA-256"),
        (spoil_config("rootfs", None), "refused"),
        (spoil_config("architecture", None), "architecture"),
        (spoil_config("config.Cmd", "sh"), "Cmd is no list"),
        (spoil_config("config.Cmd", [1]), "no word"),
        (spoil_config("config.Cmd", ["a\0b"]), "no word"),
        (spoil_config("config.Env", ["novalue"]), "no variable"),
        (spoil_config("config.Env", ["A=" + "x" * 50_000]), "take more"),
        (spoil_config("config.Cmd", ["\ud800"]), "no word"),
        (spoil_config("config.Env", ["A=\udfff"]), "no word"),
        (spoil_config("config.User", "\ud83d"), "User is no proper text"),
        (spoil_config("config.WorkingDir", "/\ud83d"), "WorkingDir is no proper text"),
        (spoil_config("config.User", {}), "User is no proper text"),
        (spoil_config("config.WorkingDir", "relative"), "no absolute path"),
    ],
)
def test_documents_that_cannot_be_used_are_refused(
    tmp_path: Path, spoil: Callable[[Image], None], why: str
) -> None:
    one = image()
    spoil(one)
    with pytest.raises(ImageError, match=why):
        found(layout(tmp_path, one), tmp_path)


@each(
    "entry",
    [
        {"RepoTags": 5},
        {"RepoTags": {"a": 1}},
        {"RepoTags": "app:1"},
        {"RepoTags": ["\ud800"]},
        {"Layers": 5},
        {"Layers": [5]},
        {"Layers": ["a\0b"]},
        {"Config": "a\0b"},
        {"Config": "\ud800"},
        {"Config": ["x"]},
        {"Config": "."},
    ],
)
@each("write", [write_directory, write_archive])
def test_a_listing_whose_fields_are_of_other_types_is_refused(
    tmp_path: Path, entry: dict[str, Any], write: Callable[[Path, dict[str, bytes]], Path]
) -> None:
    files = docker_files(("app:1", image()))
    listing = json.loads(files["manifest.json"])
    listing[0] |= entry
    files["manifest.json"] = json.dumps(listing).encode()
    with pytest.raises(ImageError, match=r"manifest.json|which is not in it"):
        found(write(tmp_path / "place", files), tmp_path)


def test_a_config_that_is_called_by_its_whole_digest_is_read(tmp_path: Path) -> None:
    """As crane and ko write archives."""
    files = docker_files(("app:1", image()))
    listing = json.loads(files["manifest.json"])
    config = listing[0]["Config"]
    listing[0]["Config"] = f"sha256:{config.rpartition('/')[2].removesuffix('.json')}"
    files[listing[0]["Config"]] = files.pop(config)
    files["manifest.json"] = json.dumps(listing).encode()
    assert found(write_archive(tmp_path / "app.tar", files), tmp_path).name == "app:1"


def test_a_name_in_an_index_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no proper text"):
        found(layout(tmp_path, image(), name="\ud800"), tmp_path)


def test_documents_with_other_digests_than_were_said_are_refused(tmp_path: Path) -> None:
    for which in ("manifest", "config"):
        one = image()
        entry = one.entry()
        digest = entry["digest"] if which == "manifest" else one_config(one)["digest"]
        name = digest.removeprefix("sha256:")
        one.blobs[name] = b" " * len(one.blobs[name])
        files = layout_files((one, entry))
        with pytest.raises(ImageError, match="SHA-256"):
            found(write_directory(tmp_path / which, files), tmp_path)
    files = docker_files(("app", image()))
    config = next(name for name in files if name.endswith(".json") and name != "manifest.json")
    files[config] = json.dumps({"os": "linux"}).encode()
    with pytest.raises(ImageError, match="SHA-256"):
        found(write_archive(tmp_path / "old.tar", files), tmp_path)


def one_config(one: Image) -> dict[str, Any]:
    return descriptor(CONFIG, json.dumps(one.config).encode())


@each(
    "document",
    [
        b"[" * 500_000,
        b'{"a":' * 100_000,
        b"null",
        b'{"manifests": {}}',
        b'{"manifests": [[]]}',
        b'{"manifests": [{"size": 1e999}]}',
        b'{"manifests": [' + b"1" * 10_000 + b"]}",
        b"\xff",
        b'{"manifests": [' + b",".join([b"{}"] * 1001) + b"]}",
        b" " * (4 * 1024 * 1024 + 1),
    ],
)
def test_indexes_that_are_bombs_or_no_indexes_are_refused(tmp_path: Path, document: bytes) -> None:
    for name in ("index.json", "manifest.json"):
        place = write_directory(tmp_path / name, {name: document})
        with pytest.raises(ImageError):
            found(place, tmp_path)


def test_an_index_that_leads_to_itself_is_refused(tmp_path: Path) -> None:
    blobs, inner = {}, b'{"manifests": []}'
    for _ in range(6):
        blobs[sha256(inner)] = inner
        inner = json.dumps({"manifests": [descriptor(INDEX, inner)]}).encode()
    files = {f"blobs/sha256/{name}": data for name, data in blobs.items()}
    with pytest.raises(ImageError, match="indexes only"):
        found(write_directory(tmp_path / "l", {"index.json": inner, **files}), tmp_path)


def test_links_in_a_layout_are_not_followed(tmp_path: Path) -> None:
    place = layout(tmp_path, image())
    (place / "index.json").rename(tmp_path / "elsewhere")
    (place / "index.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        found(place, tmp_path)


def test_links_on_the_way_to_a_file_of_a_layout_are_not_followed(tmp_path: Path) -> None:
    place = layout(tmp_path, image())
    there = found(place, tmp_path)
    (place / "blobs").rename(tmp_path / "elsewhere")
    (place / "blobs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ImageError, match="symbolic link, or no directory, on the way"):
        found(place, tmp_path)
    # Nor one that comes after the documents were read.
    with pytest.raises(ImageError, match="symbolic link, or no directory, on the way"):
        list(pieces_of(there.layers[0].blob))


@each("name", ["/etc/hostname", "../secret", "blobs/../../secret", "", "."])
def test_a_name_that_leads_out_of_a_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    files = docker_files(("app:1", image()))
    listing = json.loads(files["manifest.json"])
    listing[0]["Layers"][0] = name
    files["manifest.json"] = json.dumps(listing).encode()
    with pytest.raises(ImageError, match="which is not in it"):
        found(write_directory(tmp_path / "place", files), tmp_path)


# --- references


@each(
    ("text", "shown", "host", "short"),
    [
        ("alpine", "docker.io/library/alpine:latest", "registry-1.docker.io", "alpine"),
        ("me/app:1.2", "docker.io/me/app:1.2", "registry-1.docker.io", "app-1.2"),
        (
            "docker://index.docker.io/alpine:3",
            "docker.io/library/alpine:3",
            "registry-1.docker.io",
            "alpine-3",
        ),
        ("ghcr.io/a/b/c", "ghcr.io/a/b/c:latest", "ghcr.io", "c"),
        ("localhost:5000/x:y", "localhost:5000/x:y", "localhost:5000", "x-y"),
        ("GHCR.io:443/a", "ghcr.io/a:latest", "ghcr.io", "a"),
        ("Docker.io/me/app", "docker.io/me/app:latest", "registry-1.docker.io", "app"),
        ("localhost:443/x:y", "localhost:443/x:y", "localhost:443", "x-y"),
        ("[::1]:80/x", "[::1]:80/x:latest", "[::1]:80", "x"),
        ("r.io/x:t@sha256:" + "a" * 64, "r.io/x@sha256:" + "a" * 64, "r.io", "x-" + "a" * 12),
    ],
)
def test_references_are_read_as_docker_reads_them(
    text: str, shown: str, host: str, short: str
) -> None:
    reference = find_source(text)
    assert isinstance(reference, Reference)
    assert (str(reference), reference.host, reference.short) == (shown, host, short)


@each(
    "text",
    ["", "UPPER", "a//b", "r.io/../x", "x:", "x:ta g", "x@sha256:short", "x@md5:aa", "r.io/x?y=z",
     "r.io/" + "a" * 300, "user:pw@r.io/x", "-r.io/x", "1.2.3.4:65536/x"],
)  # fmt: skip
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="neither a file"):
        parse_reference(text)


def test_a_path_is_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alpine").mkdir()
    assert find_source("alpine") == Path("alpine")
    for text in ("./no", "/no/such", "no.tar", "no.tar.gz"):
        with pytest.raises(ImageNotFound, match="there is no"):
            find_source(text)
