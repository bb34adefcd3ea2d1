"""Container images in real VMs: an archive of `docker save` with two layers, to a shell in it; and
one without a shell, an init, or any file besides its program."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.arch import Architecture
from quicksand.base.paths import Paths
from quicksand.disks.images.boot_files import find_agent
from quicksand.disks.images.image_store import ImageStore
from quicksand.qemu import debs
from quicksand_images import build_image

from tests.conftest import fresh_places, share_findings
from tests.container_images import (
    Entry,
    Image,
    directory,
    docker_files,
    file,
    layout_files,
    symlink,
    tar,
    write_archive,
)

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

APPLETS = ["sh", "ls", "cat", "id", "pwd", "stat", "touch", "echo"]
PASSWD = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/home/app:/sbin/nologin\n"
HELLO = '#!/bin/sh\necho "$GREETING $* from $(id -u):$(id -g) in $(pwd)"\n'


def command(*words: str, code: int = 0) -> str:
    argv = [sys.executable, "-m", "quicksand_tui", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def app_image(busybox: bytes) -> Image:
    base = tar(
        directory("bin"),
        file("bin/busybox", busybox, mode=0o755),
        *(symlink(f"bin/{applet}", "busybox") for applet in APPLETS),
        file("etc/passwd", PASSWD),
        file("etc/group", "root:x:0:\napp:x:1000:\nweb:x:77:\nextra:x:2000:app\n"),
        file("etc/hidden", "x"),
        file("opt/old", "x"),
    )
    top = tar(
        file("srv/app/hello", HELLO, mode=0o755, uid=1000, gid=77),
        file("srv/line\nbreak", "found"),
        file("etc/.wh.hidden"),
        file("opt/.wh..wh..opq"),
        file("opt/new", "x", mode=0o4751, uid=5, gid=6),
        Entry(name="opt/null", type=b"3", device=(1, 3), mode=0o666),
        symlink("sbin/init", "../bin/busybox"),
        file("etc/inittab", "::sysinit:/bin/touch /run/services\n"),
    )
    return Image(
        [base, top],
        Entrypoint=["/srv/app/hello"],
        Cmd=["world"],
        Env=["GREETING=hello", "PATH=/srv/app:/bin", "HOME=/work"],
        User="app:web",
        WorkingDir="/work",
    )


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the container images app.tar and alone.tar."""
    root = tmp_path_factory.mktemp("archives")
    (root / "busybox").mkdir()
    asyncio.run(debs.unpack(["busybox-static"], root / "busybox"))
    busybox = next((root / "busybox").glob("**/bin/busybox")).read_bytes()
    write_archive(root / "app.tar", docker_files(("example/app:1.0", app_image(busybox))))
    program = find_agent(Architecture.host()).read_bytes()
    alone = Image(
        [tar(file("program", program, mode=0o755))],
        packing="+zstd",
        Entrypoint=["/program"],
        Cmd=["--version"],
    )
    write_archive(root / "alone.tar", layout_files((alone, alone.entry())))
    return root


@pytest.fixture(scope="module")
def places(
    prepared: Paths, archives: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Paths]:
    """An image store of their own, with the images "app" and "alone" in it."""
    cache = tmp_path_factory.mktemp("cache")
    share_findings(prepared, cache)
    with fresh_places(prepared) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUICKSAND_CACHE_DIR", str(cache))
        app = str(archives / "app.tar")
        command("images", "build", "--from-oci", app)
        command("images", "build", "alone", "--from-oci", str(archives / "alone.tar"))
        yield found


@pytest.fixture(scope="module")
def vm_name(places: Paths) -> Iterator[str]:
    command("run", "app", "--name", "box", "--detach", "--cold")
    yield "box"
    command("kill", "box")


@pytest.fixture
async def vm(vm_name: str) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox.attach(vm_name)
    yield sandbox
    sandbox.close()


async def test_commands_run_as_the_images_user_in_its_directory_with_its_variables(
    vm: Sandbox,
) -> None:
    done = await vm.execute('id -u; id -g; pwd; echo "$GREETING $HOME $PATH"')
    assert done.stdout == "1000\n77\n/work\nhello /work /srv/app:/bin\n"
    done = await vm.execute(["hello", "x"])  # found by the image's PATH
    assert done.stdout == "hello x from 1000:77 in /work\n"


async def test_what_a_command_is_given_comes_before_what_the_image_gives(vm: Sandbox) -> None:
    done = await vm.execute("id -u; pwd", user="root")
    assert done.stdout == "0\n/work\n"
    done = await vm.execute("pwd; echo $GREETING", cwd="/opt", env={"GREETING": "bye"})
    assert done.stdout == "/opt\nbye\n"


@pytest.mark.parametrize(
    ("user", "ids"),
    [
        (None, "1000 77 77"),  # the image's "app:web"
        ("app", "1000 1000 1000 2000"),
        ("app:extra", "1000 2000 2000"),
        ("1000:44", "1000 44 44"),
        ("4242", "4242 0 0"),
        ("root:44", "0 44 44"),
    ],
)
async def test_a_user_is_in_the_groups_that_containers_give_it(
    vm: Sandbox, user: str | None, ids: str
) -> None:
    """By whichever way it is named: to a command, to a terminal, to SFTP and SSH."""
    done = await vm.execute("echo $(id -u; id -g; id -G)", user=user)
    assert done.stdout == f"{ids}\n"
    login = await vm.find_user(user)
    assert ids.startswith(f"{login.uid} {login.gid} ")


async def test_the_images_own_command_is_run_if_asked(vm: Sandbox, vm_name: str) -> None:
    assert (await vm.execute([], entrypoint=True)).stdout == "hello world from 1000:77 in /work\n"
    assert command("exec", vm_name, "--entrypoint", "--", "you", "all").startswith("hello you all")
    assert command("exec", vm_name, "--entrypoint", "-e", "GREETING=hi").startswith("hi world")


@pytest.mark.parametrize(
    "how", [("exec", "box"), pytest.param(("run", "app", "--cold"), marks=pytest.mark.soak)]
)
def test_a_command_can_end_well_after_sigterm(vm_name: str, how: tuple[str, ...]) -> None:
    """As with containers: it gets the signal, and its exit code counts."""
    script = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    argv = [sys.executable, "-m", "quicksand_tui", *how, "--", "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.terminate()
        assert running.stdout.read() == "bye\n"
        assert running.wait(60) == 5


async def test_files_are_as_the_layers_say(vm: Sandbox) -> None:
    done = await vm.execute("ls /etc /opt; stat -c '%a %u %g' /opt/new; stat -c %F /opt/null")
    assert "hidden" not in done.stdout
    assert "old" not in done.stdout
    assert done.stdout.endswith("4751 5 6\ncharacter special file\n")
    assert (await vm.execute(["cat", "/srv/line\nbreak"])).stdout == "found"


async def test_a_terminal_has_a_shell_with_all_of_that(vm: Sandbox) -> None:
    """The user's shell lets nobody in."""
    shell = await vm.shell()
    try:
        await shell.write(b'echo "<$GREETING $(id -u) $(pwd)>"\n')
        seen = b""
        async with asyncio.timeout(60):
            async for piece in shell.output():
                seen += piece
                if b"<hello 1000 /work>" in seen:
                    break
    finally:
        await shell.close()
    shell = await vm.shell(entrypoint=True)
    seen = b"".join([piece async for piece in shell.output()])
    assert b"hello world from 1000:77" in seen
    await shell.close()


async def test_directories_of_this_host_can_be_mounted(vm: Sandbox, tmp_path: Path) -> None:
    """It takes modules of the kernel, which the image itself does not have."""
    (tmp_path / "x").write_text("from here")
    handle = await vm.mount(tmp_path, "/mnt/host")
    assert (await vm.execute("cat /mnt/host/x", user="root")).stdout == "from here"
    await vm.unmount(handle)


async def test_checkpoints_and_reverts_work(vm: Sandbox) -> None:
    await vm.checkpoint("before")
    await vm.execute("touch /work/x", user="root")
    await vm.revert("before")
    done = await vm.execute("ls /work; id -u")
    assert done.stdout == "1000\n"


def test_an_image_of_one_program_runs_it_from_a_template(places: Paths) -> None:
    command("images", "warm", "alone")
    assert command("run", "alone", "--entrypoint").startswith("quicksand-agent")
    assert "not found" in command("run", "alone", "--", "sh", code=127)


@pytest.mark.soak
def test_the_images_own_init_runs_if_asked(places: Paths, archives: Path) -> None:
    command("images", "build", "served", "--from-oci", str(archives / "app.tar"), "--init")
    wait = "while ! [ -e /run/services ]; do :; done; cat /proc/1/comm"
    said = command("run", "served", "--cold", "--timeout", "60", "--", "sh", "-c", wait)
    assert said == "init\n"


ENGINES = """\
base = "debian"
packages = ["docker.io", "docker-cli", "podman", "crun", "iptables", "nftables"]

[machine]
memory = "1G"
"""
DOCKERD = """\
setsid dockerd >/root/dockerd.log 2>&1 &
for attempt in $(seq 100); do
    if docker info >/dev/null 2>&1; then exit 0; fi
    sleep 1
done
tail /root/dockerd.log
exit 1
"""


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_docker_and_podman_run_containers_in_a_sandbox_of_the_recipe_in_the_users_guide(
    places: Paths, archives: Path, tmp_path: Path
) -> None:
    guide = Path(__file__).parents[2] / "docs" / "user-guide" / "images.md"
    assert ENGINES in guide.read_text(encoding="utf-8")
    (tmp_path / "engines.toml").write_text(ENGINES)
    await build_image(tmp_path / "engines.toml", store=ImageStore(places.images))
    async with Sandbox(image="engines", warm=False) as vm:
        await vm.files.write("/root/app.tar", (archives / "app.tar").read_bytes())
        (await vm.execute(DOCKERD, timeout=120)).check("dockerd")
        for program in ("docker", "podman"):
            (await vm.execute(f"{program} load -i /root/app.tar", timeout=60)).check()
            for network in ("", "--network none"):
                run = f"{program} run --rm {network} example/app:1.0 all"
                done = (await vm.execute(run, timeout=120)).check(run)
                assert done.stdout == "hello all from 1000:77 in /work\n"
