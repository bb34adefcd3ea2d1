"""Starting from a template: the same as a boot for every program, and never from a damaged one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths, paths
from quicksand.base.sharing import copy_sparse
from quicksand.records.config import SandboxConfig
from quicksand.snapshots.history import Origin
from quicksand.warm.templates import MAKER, VARIABLE, list_templates

from tests.conftest import make_template, our_processes, share_findings, wait_for
from tests.integration.guests import IDENTITY, is_on_time, say
from tests.integration.snapshots.files import flip_bit

pytestmark = pytest.mark.vm

LOOK = r"""
import glob, json, os, re, socket, subprocess
def run(*words):
    return subprocess.run(words, capture_output=True, text=True).stdout
def sysctls():
    found = {}
    for root, _, files in os.walk("/proc/sys"):
        for name in files:
            try:
                found[f"{root}/{name}"] = open(f"{root}/{name}").read()
            except OSError:
                found[f"{root}/{name}"] = "unreadable"
    return found
first, second = sysctls(), sysctls()
facts = {k: v for k, v in first.items() if second.get(k) == v}
facts["mounts"] = sorted(re.sub(r"(size|nr_inodes)=\d+", "", line) for line in open("/proc/mounts"))
names = set(run("ps", "-eo", "comm=").split()) - {"ps", "python3", "sh"}
facts["processes"] = sorted(name for name in names if not re.match(r"k?worker", name))
facts["addresses"] = re.sub(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", "MAC", run("ip", "-o", "addr"))
facts["addresses"] = re.sub(r"valid_lft.*", "", facts["addresses"])
facts["routes"] = run("ip", "route")
facts["devices"] = sorted(os.listdir("/dev"))
facts["run"] = sorted(os.listdir("/run"))
facts["tmp"] = sorted(os.listdir("/tmp"))
facts["environment"] = dict(os.environ)
facts["limits"] = open("/proc/self/limits").read()
facts["cpu"] = re.sub(r"(cpu MHz|bogomips).*", "", open("/proc/cpuinfo").read())
facts["uname"] = os.uname()[2:]
facts["own name"] = [socket.gethostbyname(socket.gethostname()), socket.gethostname()]
facts["users"] = open("/etc/passwd").read()
facts["resolver"] = open("/etc/resolv.conf").read()
facts["root"] = sorted(os.listdir("/"))
# A template has the SMB client's modules and ciphers already, so that no mount waits for them.
ciphers = re.findall(r"^module +: (\S+)", open("/proc/crypto").read(), re.M)
names = {"cifs", "nls_utf8", "algif_hash", *ciphers} - {"kernel"}
needed = "".join(run("modprobe", "-D", name) for name in names)
client = {re.sub("-", "_", name) for name in re.findall(r"([^/]+)\.ko", needed)}
facts["modules"] = sorted({line.split()[0] for line in open("/proc/modules")} - client)
print(json.dumps(facts))
"""

MADE_S = 240.0
"""For a template: it takes a boot and some measurements, on a host that does other things."""

OF_ONE_BOOT = re.compile(
    r"/proc/sys/(kernel/random/|kernel/hostname|kernel/ns_last_pid|kernel/pty/nr|fs/(dentry|inode"
    r"|file)-|fs/aio-nr|fs/quota|kernel/sched|kernel/perf|net/netfilter|kernel/tainted"
    r"|net/ipv./(neigh|conf)/.*/(retrans|base_reach)|vm/stat|debug/|net/ipv4/tcp_mem"
    r"|net/ipv4/udp_mem|net/ipv4/tcp_[rw]mem|net/ipv4/inet_peer_threshold|kernel/threads-max|user/|net/ipv4/tcp_fastopen_key|net/core/netdev_rss_key"
    r"|vm/min_free|vm/lowmem|vm/user_reserve|vm/admin_reserve|net/ipv4/route/max_size)"
)
"""What differs between two boots too, or follows from how much memory was free at one moment."""


async def look(vm: Sandbox) -> dict[str, object]:
    await vm.files.write("/root/look.py", LOOK.encode())
    facts = json.loads(await say(vm, "python3 /root/look.py; rm /root/look.py"))
    facts["own name"] = [facts["own name"][0], facts["own name"][1] == vm.name]
    return {key: value for key, value in facts.items() if not OF_ONE_BOOT.match(key)}


async def test_programs_see_what_they_see_after_a_boot(places: Paths) -> None:
    async with Sandbox(image="debian", name="cold", warm=False) as vm:
        assert vm.boot_timing is not None
        assert vm.boot_timing.mode == "cold boot"
        cold = await look(vm)
    async with Sandbox(image="debian", name="warm") as vm:
        assert vm.boot_timing is not None
        assert vm.boot_timing.mode == "template", vm.boot_timing.note
        warm = await look(vm)
    assert {k: (cold.get(k), v) for k, v in warm.items() if cold.get(k) != v} == {}
    assert cold.keys() == warm.keys()


async def test_each_start_is_somebody_else_with_the_hosts_clock(
    places: Paths, patient: None
) -> None:
    async with Sandbox(image="debian") as one, Sandbox(image="debian") as two:
        answers = [(await say(vm, IDENTITY)).splitlines() for vm in (one, two)]
        assert [answer[3] for answer in answers] == [one.name, two.name]
        for mine, other in zip(*answers, strict=True):
            assert mine != other
        assert one.agent_token != two.agent_token
        assert await is_on_time(two)


@pytest.fixture
def own_template(prepared: Paths, places: Paths, tmp_path: Path) -> Iterator[Origin]:
    """A copy of the template, to be damaged."""
    with pytest.MonkeyPatch.context() as patch:
        origin = make_template(SandboxConfig.parse({"image": "debian"}), prepared)
        cache = tmp_path / "cache"
        share_findings(prepared, cache)
        for file in origin.place.root.rglob("*"):
            target = cache / file.relative_to(prepared.cache)
            if file.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                copy_sparse(file, target)
        patch.setenv("QUICKSAND_CACHE_DIR", str(cache))
        place = type(origin.place)(cache / origin.place.root.relative_to(prepared.cache))
        yield Origin(place=place, node=origin.node)


@pytest.mark.parametrize(
    "part",
    [
        "memory",
        # What is refused for these is tested without VMs.
        *(
            pytest.param(part, marks=pytest.mark.soak)
            for part in ("layer", "devices", "index", "node", "missing layer")
        ),
    ],
)
async def test_a_damaged_template_is_not_used(
    own_template: Origin, part: str, capfd: pytest.CaptureFixture[str]
) -> None:
    place, node = own_template.place, own_template.node
    directory = place.checkpoints / node.id
    path = {
        "memory": place.memory / node.memory,
        "layer": place.layer(node.layers[-1]),
        "devices": directory / "devices",
        "index": directory / "pages.index",
        "node": directory / "node.json",
        "missing layer": place.layer(node.layers[0]),
    }[part]
    if part == "missing layer":
        path.unlink()
    else:
        flip_bit(path, path.stat().st_size // 2)
    async with Sandbox(image="debian") as vm:
        assert vm.boot_timing is not None
        assert vm.boot_timing.mode == "cold boot"
        assert await say(vm, "echo fine") == "fine"
        assert vm.boot_timing.note
    assert not list(place.root.glob("checkpoints/*/node.json")) or part == "node"


async def test_a_machine_of_another_size_has_a_template_of_its_own() -> None:
    async with Sandbox(image="debian", memory="300M") as vm:
        assert vm.boot_timing is not None
        assert vm.boot_timing.mode == "cold boot"
        assert "no template" in vm.boot_timing.note


@pytest.fixture
def own_cache(prepared: Paths, places: Paths) -> Iterator[Path]:
    """A cache without templates, to make them in; in the end nobody is at it and
    nothing half-made is left."""
    cache = places.data.parent / "cache"
    share_findings(prepared, cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUICKSAND_CACHE_DIR", str(cache))
        patch.delenv(VARIABLE)
        yield cache
        wait_for(lambda: not makers(cache), what="the making to end", timeout=MADE_S)
    assert not list(cache.glob("templates/.*"))


def makers(cache: Path) -> list[str]:
    """Processes that make a template: the program, its keeper and its QEMU."""
    found = our_processes(str(cache))
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (directory / "cmdline").read_bytes()
            if MAKER.encode() in line and bytes(cache) in (directory / "environ").read_bytes():
                found.append(line.replace(b"\0", b" ").decode())
    return found


async def test_the_first_start_has_a_template_made_for_the_next(own_cache: Path) -> None:
    """By a process of its own, that begins when the sandbox is idle or has ended."""
    async with Sandbox(image="debian", memory="192M") as vm:
        assert vm.boot_timing is not None
        assert vm.boot_timing.mode == "cold boot"
        assert "no template" in vm.boot_timing.note
        # It does not compete with a guest that is at work, as a desktop is after its start.
        await vm.spawn("while :; do :; done", detach=True)
        for _ in range(40):
            assert makers(own_cache)
            assert not list(own_cache.glob("templates/.making-*")), "it boots beside the first one"
            await asyncio.sleep(0.1)
    wait_for(lambda: list_templates(paths()), what="the template", timeout=MADE_S)
    async with Sandbox(image="debian", memory="192M") as vm:
        assert vm.boot_timing is not None
        assert vm.boot_timing.mode == "template", vm.boot_timing.note
        assert await say(vm, "echo fine") == "fine"
        assert "cifs" in await say(vm, "cat /proc/filesystems"), "no mount waits for its module"
        # A connection of the template's guest would be one of every guest's, to nobody.
        assert await say(vm, "tail -n +2 /proc/net/tcp") == ""
    assert len(list_templates(paths())) == 1
