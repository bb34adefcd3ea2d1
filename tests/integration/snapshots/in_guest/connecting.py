"""Runs in the guest: serves connections, and calls the host; `connecting.py GUEST_PORT HOST_PORT`.

Whatever it is sent it sends back. To each word in its file it opens another connection to the host,
and says the word there; to "poke" it sends something to all that have called it.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys


def wanted() -> str:
    """The word; "" if there is none, or one is about to be."""
    try:
        with open("/dev/shm/connecting.wanted") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def main() -> None:
    server = socket.create_server(("", int(sys.argv[1])), backlog=16)
    host = ("10.0.2.2", int(sys.argv[2]))
    ready = selectors.DefaultSelector()
    ready.register(server, selectors.EVENT_READ)
    kept: list[socket.socket] = []
    callers: set[socket.socket] = set()
    said = ""
    rounds = 0
    while True:
        for key, _ in ready.select(0.05):
            if key.fileobj is server:
                connection, _ = server.accept()
                ready.register(connection, selectors.EVENT_READ)
                callers.add(connection)
                continue
            assert isinstance(key.fileobj, socket.socket)
            try:
                data = key.fileobj.recv(4096)
                key.fileobj.sendall(data)
            except OSError:
                data = b""
            if not data:
                ready.unregister(key.fileobj)
                callers.remove(key.fileobj)
                key.fileobj.close()
        word = wanted()
        if word not in ("", said):
            said = word
            if word == "poke":
                for caller in callers:
                    caller.sendall(b"hello?")
            else:
                kept.append(socket.create_connection(host, timeout=20))
                kept[-1].sendall(word.encode())
        rounds += 1
        with open("/dev/shm/connecting.new", "w") as file:
            json.dump({"rounds": rounds, "wrong": [], "open": len(callers)}, file)
        os.rename("/dev/shm/connecting.new", "/dev/shm/connecting")


if __name__ == "__main__":
    main()
