"""Carries out the command line (__main__.py), once its stream is safe from everybody's output."""

from __future__ import annotations

import _socket
import gc
import os
import sys

from quicksand_smb import confine
from quicksand_smb.config import ConfigError, load
from quicksand_smb.minimal_stdlib import signal, start_thread
from quicksand_smb.server import serve_listener, serve_socket
from quicksand_smb.server_state import ServerState
from quicksand_smb.supervisor import supervise


def serve(path: str, stream: int | None, where: str | None) -> int:
    """Serve a stream, or the listening socket HOST:PORT `where`, with the configuration in the file
    `path`; return the exit code."""
    try:
        server = ServerState(load(path))
    except ConfigError as error:
        sys.stderr.write(f"quicksand_smb: {error}\n")
        return 1
    _reload_on_hangup(server, path)
    if stream is not None:
        connection = _socket.socket(-1, -1, -1, fileno=stream)
        _confine(server, path)
        serve_socket(connection, server)
        return 0
    host, _, port = (where or "").rpartition(":")
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port)))
    listener.listen(16)
    _confine(server, path)
    serve_listener(listener, server)
    return 0


def supervise_path(config: str, path: str) -> int:
    """Serve the Unix socket `path` of a QEMU for as long as it lives; return the exit code."""
    try:
        return supervise(load(config), path)
    except ConfigError as error:
        sys.stderr.write(f"quicksand_smb: {error}\n")
        return 1


def _confine(server: ServerState, path: str) -> None:
    """Give up all rights but those to the shares and to the configuration file, once everything is
    loaded. Standard error names each right that could not be given up."""
    gc.freeze()
    gc.enable()
    readable = [*confine.module_directories(), os.path.dirname(os.path.abspath(path))]
    for measure in confine.confine(server.directories(), also_read=readable):
        if not measure.in_force:
            sys.stderr.write(f"quicksand_smb: not confined by {measure}\n")


def _reload_on_hangup(server: ServerState, path: str) -> None:
    if not hasattr(signal, "SIGHUP"):
        return

    def read_again() -> None:
        try:
            config = load(path)
        except ConfigError:
            return  # half written, or wrong: the shares stay as they are
        with server.lock:
            server.reload(config)

    # Not in the handler itself: the thread it interrupts may hold the lock.
    signal.signal(signal.SIGHUP, lambda *_: start_thread(read_again))
