"""What quicksand_core adds to the engine's names."""

from __future__ import annotations

import json

from tests.unit.compat.shims import said_by


def test_sizes_and_digests_are_as_published() -> None:
    code = """
import pathlib, sys, hashlib
from quicksand_core.utils import *
print([parse_memory_size(one) for one in ("512M", "1.5G", "2048", 2048, "512MiB", "4GB", "8k")])
print([format_bytes(one) for one in (0, 1023, 1024, 1536 << 20, 512 << 20, 10 << 30, 5 << 50)])
path = pathlib.Path(sys.executable)
print(compute_file_sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest())
for bad in ("", "x", "0", "-1G", 0):
    try:
        parse_memory_size(bad)
    except ValueError:
        continue
    print("taken:", bad)
"""
    mib = 1 << 20
    sizes = [512 * mib, 1536 * mib, 2048 * mib, 2048 * mib, 512 * mib, 4096 * mib, 8192]
    told = ["0B", "1023B", "1.0K", "1.5G", "512M", "10G", "5120T"]
    assert said_by(code).splitlines() == [str(sizes), str(told), "True"]


def test_free_ports_can_be_bound() -> None:
    code = """
import socket
from quicksand_core.utils import find_free_port, find_free_vnc_port
for found in (find_free_port(), find_free_vnc_port()):
    with socket.socket() as one:
        one.bind(("127.0.0.1", found))
print(5900 <= find_free_vnc_port() < 6000)
"""
    assert said_by(code) == "True\n"


def test_the_host_is_told_as_the_engine_has_it() -> None:
    code = """
import json
from quicksand_core import *
from quicksand_core.host import get_host_memory_bytes
from quicksand_core.host.arch import _detect_architecture, _is_emulated
from quicksand_core.qemu.platform import get_platform_config_for_arch, get_runtime
print(json.dumps({
    "arch": ArchitectureConfig().arch_type == _detect_architecture() == Architecture.host(),
    "emulated": _is_emulated(),
    "machines": [X86_64Config().machine_type, ARM64Config().machine_type],
    "suffixes": [X86_64Config().qemu_suffix, ARM64Config().qemu_suffix],
    "systems": [one().os_type for one in (LinuxConfig, DarwinConfig, WindowsConfig)],
    "accelerators": [one().default_accelerator for one in (LinuxConfig, DarwinConfig)],
    "this": OSConfig().os_type == OS.host() == get_platform_config().os.os_type,
    "memory": get_host_memory_bytes() > 1 << 26,
    "foreign": get_platform_config_for_arch("arm64").machine_type,
    "runtime": get_runtime().qemu_binary == get_runtime(get_platform_config()).qemu_binary,
}))
"""
    assert json.loads(said_by(code)) == {
        "arch": True,
        "emulated": False,
        "machines": ["q35", "virt"],
        "suffixes": ["x86_64", "aarch64"],
        "systems": ["linux", "darwin", "windows"],
        "accelerators": ["kvm", "hvf"],
        "this": True,
        "memory": True,
        "foreign": "virt",
        "runtime": True,
    }
