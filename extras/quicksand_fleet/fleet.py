"""`Fleet`: many machines as one, for programs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

from quicksand_fleet.batch import Batch, BatchResult, Work
from quicksand_fleet.desk import Desk


class Fleet(Desk):
    """Machines that sandboxes are placed on.

    ::

        async with Fleet.open() as fleet:
            async with Sandbox(image="debian", fleet=fleet) as sandbox:
                print(sandbox.host)
            async for result in fleet.map("debian", ["uname -a", "nproc"]):
                print(result.index, result.host, result.stdout)

    A fleet belongs to one event loop. The sandboxes on its machines do not depend on it.
    """

    def map(
        self,
        image: str,
        commands: Iterable[str | Sequence[str]],
        *,
        at_once: int | None = None,
        retries: int = 0,
        timeout: float | None = 300.0,
        output_max: int = 256 * 1024,
        **options: Any,
    ) -> AsyncGenerator[BatchResult, None]:
        """Run commands, each in a new sandbox somewhere in the fleet, and yield a `BatchResult` for
        each as it comes.

        ``at_once`` sandboxes exist at a time: by default as many as the machines have memory for,
        and at most two for each of their processors. ``commands`` are taken as they are needed.
        ``timeout`` are the seconds of a command, ``output_max`` the bytes of each of its streams
        that a result keeps. ``options`` are keywords of `Sandbox`.

        If a machine is lost, what ran there may or may not have been carried out. It is carried out
        again, elsewhere, only ``retries`` times; else its result has the error. Leaving the loop,
        or cancelling it, ends the sandboxes; `contextlib.aclosing` does that without delay.

        Raises ConfigError for bad arguments. What goes wrong with one command is in its result.
        """
        work = Work(
            image=image,
            retries=retries,
            timeout=timeout,
            output_max=output_max,
            options=options,
        )
        return Batch(self, work, at_once=at_once).results(commands)
