"""Screens of other machines over VNC (RFB 3.8, RFC 6143): pictures come, keys and the pointer go.

The names here need neither asyncio nor Pillow: pictures and keys as values, and errors. Further
modules are::

    client      a connection to a server (`VncClient`)
    watching    waiting until the screen changes, or is at rest (`Watch`)
    animation   animated files of pictures, by Pillow

Servers are taken to be hostile: what they send is bounded, and an error is always a `VncError`.
"""

from quicksand_vnc.errors import AskedError, VncError
from quicksand_vnc.keys import (
    STROKES,
    Key,
    Stroke,
    can_be_typed,
    keysym_of,
    keysym_of_key,
    parse_key,
    parse_keys,
    together_of,
)
from quicksand_vnc.picture import (
    Cursor,
    Format,
    Framebuffer,
    Picture,
    Rect,
    check_scale,
    check_size,
    is_number,
    is_whole,
    read_size,
)

__all__ = [
    "STROKES",
    "AskedError",
    "Cursor",
    "Format",
    "Framebuffer",
    "Key",
    "Picture",
    "Rect",
    "Stroke",
    "VncError",
    "can_be_typed",
    "check_scale",
    "check_size",
    "is_number",
    "is_whole",
    "keysym_of",
    "keysym_of_key",
    "parse_key",
    "parse_keys",
    "read_size",
    "together_of",
]
