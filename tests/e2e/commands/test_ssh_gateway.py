"""The SSH server at a port: who comes has a key, and gets where that leads to."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_for
from tests.e2e.commands.conftest import PROGRAM, in_vm, invoke, succeed

pytestmark = pytest.mark.vm


class Gateway:
    """One that runs, and clients with the keys ``mine`` (for the sandbox "shared") and ``other``
    (for "ci-*")."""

    def __init__(self, place: Path) -> None:
        self.place = place
        lines = []
        for name, leads_to in (("mine", "shared,no-such"), ("other", "ci-*"), ("stranger", "")):
            line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
            subprocess.run(line, check=True)
            public = (place / f"{name}.pub").read_text()
            lines += [f'sandboxes="{leads_to}" {public}'] if leads_to else []
        self.keys = place / "keys"
        self.keys.write_text("# who may come\n\n" + "".join(lines))
        self.log = (place / "log").open("wb")
        self.process = subprocess.Popen(
            [*COMMAND, "--listen", "0", "--keys", str(self.keys)],
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        assert self.process.stdout is not None
        told = [self.process.stdout.readline().decode() for _ in range(3)]
        found = re.fullmatch(r"listening at \[127.0.0.1\]:(\d+) for 2 keys of .*\n", told[0])
        assert found, (told, (place / "log").read_text())
        self.port = int(found[1])
        (place / "known_hosts").write_text(told[2])

    def run(self, user: str, *words: str, key: str = "mine") -> subprocess.CompletedProcess[bytes]:
        line = ["ssh", "-F", "none", "-p", str(self.port), "-i", str(self.place / key)]
        for option in (
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "BatchMode=yes",
            f"UserKnownHostsFile={self.place}/known_hosts",
            "StrictHostKeyChecking=yes",
        ):
            line += ["-o", option]
        line += ["-l", user, "127.0.0.1", *words]
        return subprocess.run(line, capture_output=True, timeout=180, check=False)

    def told(self) -> str:
        return (self.place / "log").read_text()


COMMAND = (*PROGRAM, "ssh-gateway")


@pytest.fixture(scope="module")
def gateway(vm: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    found = Gateway(tmp_path_factory.mktemp("gateway"))
    yield found
    found.process.terminate()
    found.process.communicate(timeout=60)
    assert found.process.returncode == 128 + 15
    found.log.close()


def test_a_key_leads_to_its_sandboxes_and_to_their_users(gateway: Gateway, vm: str) -> None:
    done = gateway.run("shared", "id -un; exit 3")
    assert (done.returncode, done.stdout) == (3, b"root\n")
    in_vm(vm, "useradd -m -s /bin/sh ann")
    assert gateway.run("shared+ann", "id -un; pwd").stdout == b"ann\n/home/ann\n"
    assert "shared in as root" in gateway.told()
    assert "shared in as ann" in gateway.told()


def test_every_refusal_looks_the_same(gateway: Gateway) -> None:
    refused = [
        gateway.run(user, "id", key=key)
        for user, key in (
            ("shared", "stranger"),
            ("shared", "other"),
            ("ci-1", "mine"),
            ("no-such-name", "mine"),
            ("../shared", "mine"),
            ("*", "mine"),
        )
    ]
    assert {done.returncode for done in refused} == {255}
    told = {re.sub(rb"^.*?@", b"@", done.stderr) for done in refused}
    assert told == {b"@127.0.0.1: Permission denied (publickey).\r\n"}
    assert gateway.told().count("refused SHA256:") == 6


def test_who_may_come_in_is_told_that_a_sandbox_is_gone(gateway: Gateway) -> None:
    done = gateway.run("no-such", "id")
    assert done.returncode == 255
    assert b"no sandbox is called 'no-such'" in done.stderr
    unknown = gateway.run("shared+no-such-user", "id")
    assert b"not found" in unknown.stderr


def test_a_key_that_is_taken_out_counts_no_more(gateway: Gateway) -> None:
    text = gateway.keys.read_text()
    gateway.keys.write_text("")
    try:
        assert gateway.run("shared", "true").returncode == 255
    finally:
        gateway.keys.write_text(text)
    assert gateway.run("shared", "true").returncode == 0


def test_strangers_are_bounded_and_do_not_keep_others_out_for_long(gateway: Gateway) -> None:
    peers = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(25)]
    for peer in peers:
        peer.settimeout(60)
    # Those above the limit are closed at once, before a word is said.
    closed = [peer for peer in peers[20:] if peer.recv(100) in (b"",)]
    assert len(closed) == 5
    assert "refused: too many connections" in gateway.told()
    for peer in peers:
        peer.close()

    def lets_in() -> bool:
        return gateway.run("shared", "true").returncode == 0

    wait_for(lets_in, what="a place")


def test_a_revert_and_the_end_of_the_gateway_end_connections(gateway: Gateway) -> None:
    succeed("run", "debian", "--name", "ci-9", "--detach")
    succeed("checkpoint", "ci-9", "a")
    line = ["ssh", "-F", "none", "-p", str(gateway.port), "-i", str(gateway.place / "other")]
    line += ["-o", f"UserKnownHostsFile={gateway.place}/known_hosts", "ci-9@127.0.0.1"]
    with subprocess.Popen(
        [*line, "echo started; sleep 4716"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as old:
        assert old.stdout is not None and old.stdout.readline() == b"started\n"
        succeed("revert", "ci-9", "a")
        _, told = old.communicate(timeout=60)
    assert old.returncode == 255 and b"was reverted to 'a'" in told
    assert gateway.run("ci-9", "echo fresh", key="other").stdout == b"fresh\n"
    succeed("rm", "-f", "ci-9")


def test_keys_that_others_could_write_or_whose_limits_are_not_known_are_refused(
    tmp_path: Path,
) -> None:
    keys = tmp_path / "keys"

    def refusal() -> str:
        done = invoke("ssh-gateway", "--listen", "0", "--keys", str(keys))
        assert done.returncode == 2, done
        return done.stderr.decode()

    assert "there is no" in refusal()
    keys.write_text('from="10.0.0.1" ssh-ed25519 AAAA me\n')
    assert "line 1: it does not begin with sandboxes=" in refusal()
    keys.write_text('sandboxes="*" ssh-ed25519 nonsense\n')
    assert "line 1" in refusal()
    keys.write_text("")
    keys.chmod(0o666)
    assert "others can write" in refusal()
    for address in ("", "x", "1:2:3", "127.0.0.1:70000"):
        done = invoke("ssh-gateway", "--listen", address, "--keys", str(keys))
        assert done.returncode == 2 and b"is no address" in done.stderr
