"""Carries out the requests of a keeper's clients."""

import os

from .loop import Keeper
from .machines import Client
from .owner import OwnerWait, other_end


def serve(keeper: Keeper, client: Client, request: dict[str, object]) -> None:
    """Serve one request. Requests and replies are JSON objects, one per line, in order. A
    machine that a connection owns is killed when the connection ends.

    launch   {name, argv, descriptors: [number, …]}, with as many descriptors in the message:
             fork another QEMU, which this connection owns -> {pid}
    turn     {name}: the guest of the current machine goes on as the machine of that name, whose
             directory the client has made (finishing.py)
    finish   {again}: have a revert finished that no client works on, unless that was tried
             and {again} is false -> {running}: whether somebody is at it
    promote  {name}: it becomes the current machine; this connection owns the old one
    kill     {name} -> {ended: exit code}, once it has ended; with {behind: true} at once, and
             no connection owns it any longer
    wait     {seconds, memory}, with the owner's end of the leash: the sandbox, which this
             connection's client owned, belongs to nobody and waits for `own` (owner_wait.py)
    own      {discard}, with the read end of a lifeline and the write end of a status pipe: a
             sandbox that waits belongs to this connection's client -> {keeper_pid}, with both
             ends of the leash and the sandbox's lock
    guard    {on, forwards}: while on, the end of this connection resumes the current machine
             and restores the forwards that this connection's machines have taken from it; with
             a promotion, the resuming ends
    hold     with the owner's end of the leash: QEMU ends with this keeper (fleet_lease.py)
    lease    {epoch, until}: QEMU may run until that moment of the clock `waiting.now` ->
             {let_go}: whether it ends with nothing else any more, besides the keeper
    """
    what = request["op"]
    if (serve_it := OTHERS.get(str(what))) is not None:
        serve_it(keeper, client, request)
        return
    if what == "guard":
        client.guards = bool(request["on"])
        forwards = request.get("forwards")
        client.forwards = [str(rule) for rule in forwards] if isinstance(forwards, list) else []
        client.reply(ok=True)
        return
    name = str(request["name"])
    if what == "launch":
        _serve_launch(keeper, client, name, request)
        return
    if what == "turn":
        _serve_turn(keeper, client, name)
        return
    machine = keeper.machines[name]
    match what:
        case "promote" if machine.owner is client and not keeper.asked_to_stop:
            keeper.point_to(name)
            machine.owner, keeper.current.owner = None, client
            keeper.current = machine
            client.guards = False  # it runs; a later pause is intended
        case "kill" if machine.owner is client:
            machine.kill()
            if not request.get("behind"):
                client.awaits = machine
                return
            machine.owner = None
        case _:
            raise ValueError(f"{what} is not possible for machine {name}")
    client.reply(ok=True)


def _serve_finish(keeper: Keeper, client: Client, request: dict[str, object]) -> None:
    if request.get("again") and keeper.is_left():
        keeper.finishers.start(keeper.current.unfinished, keeper.messages)
    client.reply(running=bool(keeper.finishers.pids) or keeper.is_guarded())


def _serve_hold(keeper: Keeper, client: Client, request: dict[str, object]) -> None:
    if keeper.leash is None or len(client.descriptors) != 1:
        raise ValueError("there is no leash to hold")
    keeper.lease.hold(client.descriptors[0])
    client.descriptors = []
    client.reply(ok=True)


def _serve_lease(keeper: Keeper, client: Client, request: dict[str, object]) -> None:
    keeper.lease.grant(int(str(request["epoch"])), float(str(request["until"])))
    client.reply(let_go=keeper.lease.is_holding and not keeper.owned)


def _serve_wait(keeper: Keeper, client: Client, request: dict[str, object]) -> None:
    has_leash = keeper.leash is not None and keeper.lock is not None
    if not (keeper.owned and has_leash) or len(client.descriptors) != 1:
        raise ValueError("a sandbox without an owner cannot be given away")
    seconds = request["seconds"]
    limit = None if seconds is None else float(str(seconds))
    memory = int(str(request["memory"]))
    keeper.waiting = OwnerWait(client.descriptors[0], keeper.sandbox_dir, limit, memory)
    client.descriptors = []
    keeper.let_go()
    keeper.discard = True
    client.reply(ok=True)


def _serve_own(keeper: Keeper, client: Client, request: dict[str, object]) -> None:
    if keeper.waiting is None or keeper.asked_to_stop or len(client.descriptors) != 2:
        raise ValueError("the sandbox does not wait for an owner")
    assert keeper.leash is not None
    assert keeper.lock is not None
    for number, descriptor in enumerate(client.descriptors):
        os.dup2(descriptor, number, inheritable=False)
    client.drop_descriptors()
    waiting, keeper.waiting = keeper.waiting, None
    keeper.owned, keeper.discard = True, bool(request["discard"])
    # If the client is gone by now, its lifeline is closed.
    keeper.watch(0, keeper.lifeline)
    keeper.owner.follow(other_end(client.connection))
    passed = [keeper.leash, waiting.leash_end, keeper.lock]
    client.reply(passed, keeper_pid=os.getpid())
    waiting.end()


def _serve_launch(keeper: Keeper, client: Client, name: str, request: dict[str, object]) -> None:
    argv, numbers = request["argv"], request["descriptors"]
    if not isinstance(argv, list) or not isinstance(numbers, list):
        raise TypeError("argv and descriptors are lists")
    if len(numbers) != len(client.descriptors) or not keeper.is_free(name):
        raise ValueError(f"machine {name} cannot be launched like that")
    wanted = {int(n): d for n, d in zip(numbers, client.descriptors, strict=True)}
    machine = keeper.start(name, [str(word) for word in argv], wanted)
    machine.owner = client
    client.drop_descriptors()
    client.reply(pid=machine.pid)


def _serve_turn(keeper: Keeper, client: Client, name: str) -> None:
    directory = os.path.join(keeper.runtime_dir, name)
    if not (keeper.is_free(name) and os.path.isdir(directory)):
        raise ValueError(f"the guest cannot go on as machine {name}")
    if keeper.asked_to_stop:
        raise ValueError("the sandbox is being stopped")
    keeper.point_to(name)
    del keeper.machines[keeper.current.name]
    keeper.current.turn(name, directory)
    keeper.machines[name] = keeper.current
    client.guards = True  # if the client goes before it is done, the revert must be finished
    client.reply(ok=True)


OTHERS = {
    **{"wait": _serve_wait, "own": _serve_own, "finish": _serve_finish},
    **{"hold": _serve_hold, "lease": _serve_lease},
}
"""Requests that name no machine."""
