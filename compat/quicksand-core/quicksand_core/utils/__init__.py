"""Small helpers for scripts."""

from quicksand_core.utils.hashing import DEFAULT_CHUNK_SIZE, compute_file_sha256
from quicksand_core.utils.memory import format_bytes, parse_memory_size
from quicksand_core.utils.network import find_free_port, find_free_vnc_port

__all__ = [
    "DEFAULT_CHUNK_SIZE",
    "compute_file_sha256",
    "find_free_port",
    "find_free_vnc_port",
    "format_bytes",
    "parse_memory_size",
]
