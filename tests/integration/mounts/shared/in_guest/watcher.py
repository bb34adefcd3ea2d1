"""Prints the events (inotify(7)) of the directories that are its arguments, a line each. After
`--opens` it prints who opens and closes them, too."""

import ctypes
import os
import struct
import sys

ALL = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""Changes of bytes, attributes and names."""
OPENS = 0x10 | 0x20
NAMES = {
    0x10: "CLOSE_NOWRITE", 0x20: "OPEN",
    0x2: "MODIFY", 0x4: "ATTRIB", 0x8: "CLOSE_WRITE", 0x40: "MOVED_FROM", 0x80: "MOVED_TO",
    0x100: "CREATE", 0x200: "DELETE", 0x400: "DELETE_SELF", 0x800: "MOVE_SELF",
}  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)
inotify = libc.inotify_init()
paths = {}
wanted = ALL
for path in sys.argv[1:]:
    if path == "--opens":
        wanted |= OPENS
        continue
    number = libc.inotify_add_watch(inotify, os.fsencode(path), wanted)
    if number < 0:
        sys.exit(f"{path}: {os.strerror(ctypes.get_errno())}")
    paths[number] = path
print("watching", flush=True)
while True:
    data = os.read(inotify, 1 << 16)
    while data:
        number, mask, _, length = struct.unpack_from("=iIII", data)
        name = data[16 : 16 + length].rstrip(b"\0").decode()
        data = data[16 + length :]
        said = "+".join(word for bit, word in NAMES.items() if mask & bit)
        print(f"{paths.get(number)}/{name} {said}", flush=True)
