"""A world as a busy day leaves it: twenty sandboxes, one of them with forty checkpoints."""

from __future__ import annotations

from dataclasses import replace

from quicksand.things.mount_facts import MountFacts
from quicksand.things.sandbox_facts import TrafficRates
from quicksand.things.status import MountState, Status

from quicksand_tui.model.shown_sandboxes import (
    CheckpointTree,
    CheckpointView,
    SandboxView,
    UseHistory,
)
from quicksand_tui.model.world import World
from tests.unit.app.fakes import DEBIAN, GIB, HOST, KEYMAP, MIB, NOW, OLD, kept

MINUTE = 60.0

_WORK = (
    # id, tag, parent, minutes ago, note, own MiB
    ("k00", "clean", None, 2880, "fresh system", 0.2),
    ("k01", "v1", "k00", 2700, "before pip", 1.2),
    ("k02", "deps", "k01", 2690, "pip install -r requirements.txt", 48),
    ("k03", "try-uwsgi", "k01", 2600, "does not start", 14),
    ("k04", "try-gunicorn", "k01", 2590, "starts, leaks", 12),
    ("k05", "gunicorn-2-workers", "k04", 2580, "", 2.5),
    ("k06", "db-migrated", "k02", 1500, "schema 41", 96),
    ("k07", "seeded", "k06", 1490, "10,000 users", 310),
    ("k08", "before-load-test", "k07", 1440, "", 3.1),
    ("k09", "load-test-1", "k08", 1430, "p99 is 1.9 s", 22),
    ("k10", "load-test-2", "k08", 1400, "p99 is 0.4 s with the index", 25),
    ("k11", "index-added", "k10", 1390, "users(email)", 8.2),
    ("k12", "tls", "k11", 700, "certificate of the test CA", 0.9),
    ("k13", "tls-hsts", "k12", 690, "", 0.4),
    ("k14", "http3", "k12", 680, "needs another nginx", 31),
    ("k15", "http3-quictls", "k14", 670, "builds, crashes at the handshake", 120),
    ("k16", "cache", "k13", 400, "redis beside it", 18),
    ("k17", "cache-cluster", "k16", 380, "three of them, one too many", 44),
    ("k18", "cache-ttl-60", "k16", 360, "", 1.1),
    ("k19", "release-candidate", "k18", 200, "what is shown on Friday", 5.5),
    ("k20", "rc-fix-login", "k19", 90, "session cookie is SameSite", 2.2),
    ("k21", "rc-fix-upload", "k19", 85, "413 for large files", 2.9),
    ("k22", "rc-fix-both", "k21", 40, "merged by hand", 1.4),
    ("k23", "py", "k22", 2, "deps installed", 1.1),
)
_AUTO = (
    ("a00", "k03", 2595),
    ("a01", "k05", 2570),
    ("a02", "a01", 2565),
    ("a03", "a02", 2560),
    ("a04", "k09", 1420),
    ("a05", "k15", 660),
    ("a06", "k17", 375),
    ("a07", "k20", 88),
    ("a08", "a07", 87),
    ("a09", "k01", 2695),
    ("a10", "a09", 2694),
    ("a11", "k12", 655),
    ("a12", "a11", 654),
    ("a13", "a12", 650),
    ("a14", "k22", 30),
)


def _auto(id_: str, parent: str, minutes: float) -> CheckpointView:
    return kept(
        id_,
        f"before revert {12 + int(minutes) % 9}:{int(minutes) % 60:02}:07",
        parent,
        created=NOW - minutes * MINUTE,
        auto=True,
        size=int(0.7 * MIB),
        is_measured=True,
    )


def _tree() -> CheckpointTree:
    made = [
        kept(
            id_,
            tag,
            parent,
            created=NOW - minutes * MINUTE,
            note=note,
            size=int(own * MIB),
            is_measured=True,
            bytes_written=int(own * 2 * MIB),
            pinned=tag in ("clean", "release-candidate"),
            pause_s=0.007 + 0.001 * (len(tag) % 9),
        )
        for id_, tag, parent, minutes, note, own in _WORK
    ]
    lost = CheckpointView(id="c0ffee00", tag="c0ffee00", name="c0ffee00", error="no JSON: line 1")
    made += [_auto(*facts) for facts in _AUTO]
    made.sort(key=lambda view: view.created)
    own = sum(view.size for view in made)
    return CheckpointTree(checkpoints=(lost, *made), head="k23", changed=int(1.1 * MIB), own=own)


TREE = _tree()
SRC = MountFacts(
    key="/src",
    host="/home/me/shop",
    guest="/src",
    traffic=TrafficRates(received=12_400_000, sent=30_000),
)
ASSETS = MountFacts(
    key="/assets", host="/data/assets", guest="/assets", readonly=True, state=MountState.MOUNTING
)

_WAVE = (2, 3, 9, 22, 48, 31, 12, 5, 4, 9, 17, 41, 40, 37, 52, 60, 33, 21, 8, 3)


def _box(
    number: int,
    name: str,
    state: Status,
    image: str,
    minutes: float,
    limit: float,
    cpu: float,
    used: float,
    disk: float,
) -> SandboxView:
    live = state in (Status.RUNNING, Status.PAUSED)
    wave = tuple(
        float(max(0, min(100, cpu * (0.6 + _WAVE[(n + number) % 20] / 60)))) for n in range(20)
    )
    return SandboxView(
        id=f"{number + 16:02x}{0x22CC33DD44 + number * 7919:010x}",
        name=name,
        state=state,
        image=image,
        created=NOW - minutes * MINUTE,
        started=NOW - minutes * MINUTE if live else None,
        run=f"r{number}" if live else "",
        memory_limit=int(limit * MIB),
        memory_used=int(used * MIB) if live else None,
        cpus=2,
        cpu_percent=cpu if live else None,
        disk=int(disk * MIB),
        network="full" if number % 3 else "none",
        accel="tcg" if live else "",
        accel_reason="kvm: /dev/kvm does not exist" if live else "",
        history=UseHistory(
            cpu=wave if live else (),
            memory=tuple(int(used * MIB * (0.8 + n / 100)) for n in range(20)) if live else (),
            disk=tuple(int(disk * MIB * (0.7 + n / 66)) for n in range(20)),
        ),
    )


_BOXES = (
    ("web", Status.RUNNING, "debian", 540, 512, 2.3, 163, 860),
    ("dev", Status.RUNNING, "debian", 430, 1024, 32.1, 739, 548),
    ("agent-1", Status.RUNNING, "alpine", 125, 256, 71.4, 96, 80),
    ("agent-2", Status.RUNNING, "alpine", 124, 256, 12.0, 88, 81),
    ("agent-3", Status.PAUSED, "alpine", 123, 256, 0.0, 64, 80),
    ("agent-4", Status.RUNNING, "alpine", 122, 256, 99.0, 128, 96),
    ("agent-5", Status.RUNNING, "alpine", 121, 256, 0.3, 61, 79),
    ("ci-runner-amd64-nightly", Status.RUNNING, "debian", 75, 2048, 184.0, 1390, 4200),
    ("desk", Status.RUNNING, "ubuntu-desktop", 60, 2048, 8.0, 910, 2900),
    ("db", Status.STOPPED, "ubuntu", 4320, 1024, 0, 0, 2150),
    ("db-replica", Status.STOPPED, "ubuntu", 4300, 1024, 0, 0, 2130),
    ("old-shop", Status.STOPPED, "debian", 20160, 512, 0, 0, 640),
    ("bisect-4711", Status.CRASHED, "debian", 33, 1024, 0, 0, 120),
    ("fuzz-1", Status.RUNNING, "alpine", 20, 128, 100.0, 70, 33),
    ("fuzz-2", Status.RUNNING, "alpine", 20, 128, 98.0, 71, 33),
    ("fuzz-3", Status.RUNNING, "alpine", 20, 128, 97.0, 69, 32),
    ("docs", Status.STOPPED, "debian", 8640, 512, 0, 0, 210),
    ("playground", Status.PAUSED, "debian", 300, 512, 0.0, 140, 300),
    ("smoke-test", Status.RUNNING, "debian", 4, 512, 45.0, 150, 40),
    ("scratch", Status.RUNNING, "debian", 1, 512, 88.0, 130, 12),
)


def _boxes() -> tuple[SandboxView, ...]:
    made = {name: _box(n, name, *rest) for n, (name, *rest) in enumerate(_BOXES)}  # type: ignore[arg-type]
    made["web"] = replace(
        made["web"],
        tree=TREE,
        ports=((8080, 80), (8443, 443)),
        mounts=(ASSETS, SRC),
        network="full",
        origin="rc-fix-both",
    )
    made["desk"] = replace(made["desk"], has_display=True)
    made["bisect-4711"] = replace(made["bisect-4711"], error="QEMU was ended by SIGKILL")
    return tuple(made.values())


ALPINE = replace(DEBIAN, name="alpine", version="3.22", size=31 * MIB)
RICH = World(
    taken=NOW,
    sandboxes=tuple(sorted(_boxes(), key=lambda view: view.created or 0.0)),
    images=(ALPINE, DEBIAN, OLD),
    host=replace(HOST, memory_free=23 * GIB),
    keymap=KEYMAP,
)
