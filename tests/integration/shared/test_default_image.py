"""What the default image has for those who work in it."""

from __future__ import annotations

import asyncio

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore

pytestmark = pytest.mark.vm

SIZE_MAX = 220_000_000
"""Bytes of the image in the store."""

USES = """
import asyncio, ctypes, curses, http.server, json, lzma, readline, sqlite3, ssl, subprocess
import tempfile, threading, unittest, urllib.request, uuid, zipfile
with tempfile.TemporaryDirectory() as place:
    with zipfile.ZipFile(f"{place}/a.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("name", "zipped")
    said = zipfile.ZipFile(f"{place}/a.zip").read("name").decode()
    said += str(sqlite3.connect(f"{place}/db").execute("select 6 * 7").fetchone()[0])
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"served")
        def log_message(self, *_):
            pass
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    async def ask():
        url = f"http://127.0.0.1:{server.server_port}/"
        return await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
    said += asyncio.run(ask())
print(said, len(ssl.create_default_context().get_ca_certs()) > 50)
"""


async def test_what_programs_import_and_call_is_there(vm: Sandbox) -> None:
    result = await vm.execute(["python3", "-c", USES], timeout=120, user="quicksand")
    assert (result.stdout, result.stderr) == ("zipped42served True\n", "")
    script = "for name in git curl less vi ps; do command -v $name || exit 1; done"
    assert (await vm.execute(script)).exit_code == 0
    git = "git init -q x && cd x && git -c user.name=a -c user.email=b commit -q --allow-empty -m c"
    assert (await vm.execute(f"cd $(mktemp -d) && {git}")).exit_code == 0


async def test_its_modules_are_compiled_so_that_nobody_waits_or_writes_at_an_import(
    vm: Sandbox,
) -> None:
    result = await vm.execute(
        ["python3", "-v", "-c", "import asyncio, sqlite3, urllib.request"], timeout=120
    )
    assert result.exit_code == 0
    assert "code object from /usr/lib/python3" not in result.stderr


async def test_virtual_environments_are_made_and_pip_is_there_for_them(vm: Sandbox) -> None:
    # Without pip: emulated, unpacking it takes half a minute.
    make = "d=$(mktemp -d) && python3 -m venv --without-pip $d/v && $d/v/bin/python -m ensurepip"
    result = await vm.execute(f"{make} --version", timeout=120)
    assert result.stdout.startswith("pip "), result.stderr


async def test_the_first_line_typed_into_its_interpreter_is_carried_out(vm: Sandbox) -> None:
    shell = await vm.shell("python3")
    await shell.write(b"print(f'<{6 * 7}>')\n")
    seen = b""

    async def watch() -> None:
        nonlocal seen
        async for piece in shell.output():
            seen += piece
            if b"<42>" in seen:
                return

    try:
        async with asyncio.timeout(60):
            await watch()
    finally:
        await shell.close()
    assert b"Error" not in seen


def test_it_is_small(places: Paths) -> None:
    image = ImageStore(places.images).get("debian")
    assert image is not None
    files = [path for path in image.disk.parent.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= SIZE_MAX


@pytest.mark.parametrize("user", ["root", "quicksand"])
async def test_a_login_shell_starts_no_program_for_what_debians_own_profile_says(
    vm: Sandbox, user: str
) -> None:
    said = []
    for profile in ("/etc/profile", "/usr/share/base-files/profile"):
        script = f'. {profile}; PS1=x; . {profile}; echo "$PATH|$PS1"; set -o'
        command = ["env", "-i", "/bin/bash", "--noprofile", "-c", script]
        said.append((await vm.execute(command, user=user)).stdout)
    assert said[0] == said[1] != ""
    script = "PATH=/nowhere; . /etc/profile 2>&1"
    alone = await vm.execute(["/bin/bash", "--noprofile", "-c", script], user=user)
    assert (alone.stdout, alone.exit_code) == ("", 0)
