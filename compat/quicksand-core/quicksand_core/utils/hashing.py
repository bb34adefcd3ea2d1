"""Digests of files."""

from __future__ import annotations

from pathlib import Path

from quicksand.disks.images.stored_image import sha256_file

__all__ = ["DEFAULT_CHUNK_SIZE", "compute_file_sha256"]

DEFAULT_CHUNK_SIZE = 64 * 1024


def compute_file_sha256(path: Path, *, chunk_size: int = DEFAULT_CHUNK_SIZE) -> str:
    """The SHA-256 of a file, in hexadecimal. How much is read at once is not the caller's affair
    here; it only has to be a number that could be. Raises OSError, ValueError."""
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, not {chunk_size}")
    return sha256_file(Path(path))
