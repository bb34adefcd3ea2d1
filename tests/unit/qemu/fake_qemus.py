"""Programs that answer as QEMU does, where no machine need run."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.qemu.offers import needed_types

QEMU = """\
#!/bin/sh
case "$1" in
--version) echo "QEMU emulator version {version} (Debian)"; exit 0 ;;
esac
echo "$QEMU_MODULE_DIR $@" >>"$0.calls"
echo '{{"QMP": {{"version": {{}}}}}}'
while read -r line; do
    case $line in
    *query-status*) echo '{{"return": {{"status": "{state}"}}}}' ;;
    *qom-list-types*) echo '{types}' ;;
    *query-machines*) echo '{{"return": [{{"name": "pc-q35-9.0", "alias": "q35"}}]}}' ;;
    *quit*) echo '{{"return": {{}}}}'; exit 0 ;;
    *) echo '{{"return": {{}}}}' ;;
    esac
done
"""
IMG = "#!/bin/sh\necho 'qemu-img version 9.0.0'\n"


def text_of(
    version: str = "9.0.1",
    state: str = "prelaunch",
    lacks: tuple[str, ...] = (),
    arch: str = "x86_64",
) -> str:
    """A fake emulator that knows all types that our machines need but ``lacks``."""
    known = needed_types(Architecture.parse(arch), display=True) - {*lacks}
    types = json.dumps({"return": [{"name": name} for name in sorted(known)]})
    return QEMU.format(version=version, state=state, types=types)


def fake_qemu(
    directory: Path,
    version: str = "9.0.1",
    state: str = "prelaunch",
    lacks: tuple[str, ...] = (),
    arch: str = "x86_64",
) -> Path:
    """Put a fake QEMU into a directory; return the emulator's path."""
    directory.mkdir(parents=True, exist_ok=True)
    found = directory / f"qemu-system-{arch}"
    for path, text in (
        (directory / "qemu-img", IMG),
        (found, text_of(version, state, lacks, arch)),
    ):
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return found


def calls(program: Path) -> list[str]:
    """With which arguments a fake was run, but for its version."""
    path = program.with_name(f"{program.name}.calls")
    return path.read_text().splitlines() if path.exists() else []
