"""The words for the engine's present stage."""

from __future__ import annotations

STAGES = {
    # A start
    "image": "finding the image",
    "accelerator": "probing the accelerator",
    "disk": "making the disk",
    "qemu": "starting QEMU",
    "guest": "booting the guest",
    "desktop": "waiting for the desktop",
    # Work that moves bytes
    "copy": "copying",
    "compress": "compressing",
}
"""The words, by the engine's names of its stages."""


def stage_text(stage: str) -> str:
    """Returns a stage of the engine in words; the engine's own if it has none here."""
    return STAGES.get(stage, stage)
