"""`python -m quicksand_smb --config FILE` serves the stream that is standard input and output.

With `--listen HOST:PORT` it serves a listening socket instead. With `--supervise PATH` it serves
the Unix socket of a QEMU for as long as that QEMU lives (supervisor.py). SIGHUP makes it read the
configuration again: a share that is gone from it ends at once, with everything that is open in it.
The process is confined to the shares with which it started (`confine`), so only a new process can
add others.
"""

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from quicksand_smb.server_state import ServerState


def main(arguments: list[str]) -> int:
    from quicksand_smb import confine

    confine.no_core_files()  # the configuration has secrets
    gc.disable()  # loading makes no garbage; collecting would take 1.0 ms
    # An engine that was started before an upgrade in place calls it by its former name.
    arguments = ["--supervise" if word == "--attend" else word for word in arguments]
    options = dict(zip(arguments[::2], arguments[1::2], strict=False))
    modes = [name for name in options if name != "--config"]
    is_known = modes in ([], ["--listen"], ["--supervise"])
    if len(arguments) % 2 or not is_known or "--config" not in options:
        sys.stderr.write(
            "usage: python -m quicksand_smb --config FILE [--listen HOST:PORT | --supervise PATH]\n"
        )
        return 2
    where = options.get("--listen")
    if "--supervise" in options:
        return _supervise(options["--config"], options["--supervise"])
    # Do this before anything can fail: output on descriptor 2 would go to the guest.
    stream = None if where else confine.take_stream()
    import _socket

    from quicksand_smb.config import ConfigError, load
    from quicksand_smb.server import serve_listener, serve_socket
    from quicksand_smb.server_state import ServerState

    path = options["--config"]
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


def _supervise(config: str, path: str) -> int:
    from quicksand_smb.config import ConfigError, load
    from quicksand_smb.supervisor import supervise

    try:
        return supervise(load(config), path)
    except ConfigError as error:
        sys.stderr.write(f"quicksand_smb: {error}\n")
        return 1


def _confine(server: "ServerState", path: str) -> None:
    """Give up all rights but those to the shares and to the configuration file, once everything is
    loaded. Standard error names each right that could not be given up."""
    import os

    from quicksand_smb import confine

    gc.freeze()
    gc.enable()
    readable = [*confine.module_directories(), os.path.dirname(os.path.abspath(path))]
    for measure in confine.confine(server.directories(), also_read=readable):
        if not measure.in_force:
            sys.stderr.write(f"quicksand_smb: not confined by {measure}\n")


def _reload_on_hangup(server: "ServerState", path: str) -> None:
    from quicksand_smb.config import ConfigError, load
    from quicksand_smb.minimal_stdlib import signal, start_thread

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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
