"""Feeding a command's stdin, which `Sandbox.execute` does."""

from quicksand_core._absent import refusing

_EXECUTE = "use Sandbox.execute(stdin=…), or Sandbox.spawn for a command that is fed by hand"

__getattr__ = refusing(
    __name__,
    run_with_stdin=_EXECUTE,
    validate_stdin=_EXECUTE,
    STDIN_CAPABILITY=_EXECUTE,
    STDIN_CHUNK_SIZE=_EXECUTE,
    STDIN_UNSUPPORTED=_EXECUTE,
)
