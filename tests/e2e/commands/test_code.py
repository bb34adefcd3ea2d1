"""What an editor does with a sandbox by SSH, step by step, and the command that opens one."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from quicksand.base.paths import Paths
from quicksand.records.host_sockets import ssh_masters

from tests.conftest import free_port, wait_for
from tests.e2e.commands.conftest import in_vm, invoke, succeed

pytestmark = pytest.mark.vm

SERVER = """
import asyncio, os, sys
async def serve(reader, writer):
    writer.write(b"server:" + await reader.readline())
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    other = await asyncio.start_unix_server(serve, sys.argv[1])
    port = server.sockets[0].getsockname()[1]
    with open(sys.argv[1] + ".port", "w") as told:
        told.write(str(port))
    await server.serve_forever()
asyncio.run(main())
"""

SCRIPT = """
echo "platform==$(uname -s)/$(uname -m)=="
mkdir -p ~/.editor-server && cd ~/.editor-server || exit 1
tar -xzf ~/server.tar.gz
python3 server.py ~/.editor-server/socket </dev/null >log 2>&1 &
while [ ! -s socket.port ]; do sleep 0.05; done
echo "port==$(cat socket.port)=="
exec cat
"""
"""As the script of VS Code's Remote-SSH: it looks, unpacks, starts the server in the background,
and tells its port. What comes then keeps the connection."""


def test_the_steps_of_an_editor_work_without_network(
    vm: str, places: Paths, tmp_path: Path
) -> None:
    succeed("ssh-config")
    config = places.data / "ssh" / "config"
    alone = ["-F", str(config), "-S", "none"]
    (tmp_path / "server.py").write_text(SERVER)
    subprocess.run(
        ["tar", "-czf", tmp_path / "server.tar.gz", "-C", tmp_path, "server.py"], check=True
    )
    # The server is uploaded.
    upload = ["scp", *alone[:2], "-o", "ControlPath=none", f"{tmp_path}/server.tar.gz", f"{vm}.qs:"]
    subprocess.run(upload, check=True, timeout=60)
    # A script on stdin starts it, in a connection with a dynamic forward.
    socks = free_port()
    line = ["ssh", *alone, "-T", "-D", str(socks), f"{vm}.qs", "bash"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as editor:
        assert editor.stdin is not None and editor.stdout is not None
        editor.stdin.write(SCRIPT.encode())
        editor.stdin.flush()
        assert editor.stdout.readline() == f"platform==Linux/{os.uname().machine}==\n".encode()
        port = int(editor.stdout.readline().decode().strip("=port\n"))
        assert through_socks(socks, port) == b"server:hello\n"
        editor.terminate()
    # The server outlives that connection; the next one finds it, at its Unix socket too.
    there = tmp_path / "there"
    forward = ["ssh", *alone, "-N", "-L", f"{there}:/root/.editor-server/socket", f"{vm}.qs"]
    with subprocess.Popen(forward) as again:
        wait_for(there.exists, what="the forward")
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(there))
            peer.sendall(b"hello\n")
            assert peer.makefile("rb").readline() == b"server:hello\n"
        again.terminate()
    in_vm(vm, "pkill -f '[s]erver.py'; rm -r /root/.editor-server /root/server.tar.gz")
    ssh_masters(places).rmdir()


def through_socks(proxy: int, port: int) -> bytes:
    """What a server on the guest's own loopback answers, through a proxy here (RFC 1928)."""
    with socket.create_connection(("127.0.0.1", proxy), 60) as peer:
        peer.sendall(b"\x05\x01\x00")
        assert peer.recv(2) == b"\x05\x00"
        address = socket.inet_aton("127.0.0.1") + port.to_bytes(2, "big")
        peer.sendall(b"\x05\x01\x00\x01" + address)
        assert peer.recv(10)[:2] == b"\x05\x00"
        peer.sendall(b"hello\n")
        return peer.makefile("rb").readline()


def test_the_command_says_what_is_missing_and_what_it_would_run(vm: str) -> None:
    done = invoke("code", vm, "--check")
    assert done.stdout.decode() == f"code --remote ssh-remote+{vm}.qs /root\n"
    assert b"the sandbox has 512M of memory" in done.stderr
    assert invoke("code", vm, "/src", "--check", "--editor", "zed").stdout.decode() == (
        f"zed ssh://{vm}.qs/src\n"
    )
    assert invoke("code", "no-such").returncode == 1
