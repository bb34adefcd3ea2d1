"""`python -m quicksand_smb --config FILE` serves the stream that is standard input and output.

With `--listen HOST:PORT` it serves a listening socket instead. With `--supervise PATH` it serves
the Unix socket of a QEMU for as long as that QEMU lives (supervisor.py). SIGHUP makes it read the
configuration again: a share that is gone from it ends at once, with everything that is open in it.
The process is confined to the shares with which it started (`confine`), so only a new process can
add others.
"""

import gc
import sys

from quicksand_smb import confine


def main(arguments: list[str]) -> int:
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
        from quicksand_smb import command_line  # noqa: PLC0415

        return command_line.supervise_path(options["--config"], options["--supervise"])
    # Do this before anything can fail: output on descriptor 2 would go to the guest.
    stream = None if where else confine.take_stream()
    from quicksand_smb import command_line  # noqa: PLC0415

    return command_line.serve(options["--config"], stream, where)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
