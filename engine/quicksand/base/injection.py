"""Makes another process execute a system call, by ptrace(2): a userfaultfd belongs to the address
space of the process that makes it. Linux on x86_64 only.

It imports nothing else of the engine, because the keeper uses it too. A process can only be traced
by the thread that attached to it, so each function here does all of its steps.
"""

import ctypes
import errno
import os
import signal
import sys
import time

SYSCALL = 0x050F
"""The instruction ``syscall``, as a little-endian word."""

WAIT_S = 1.0
"""Seconds within which a running process must stop. One that waits for a disk cannot."""

RETRIES = 100
RETRY_S = 0.001
"""Attempts to stop a process that was not waiting in a system call, and the seconds between
them."""

# Requests and options of ptrace (linux/ptrace.h, asm/ptrace-abi.h).
_TRACEME, _PEEK, _POKE, _SINGLESTEP, _GETREGS, _SETREGS, _DETACH = 0, 1, 4, 9, 12, 13, 17
_SETOPTIONS, _SEIZE, _INTERRUPT = 0x4200, 0x4206, 0x4207
_EXITKILL = 0x100000

# Positions in struct user_regs_struct (sys/user.h), which has 27 words.
_ARGUMENTS = (14, 13, 12, 7, 9, 8)  # rdi, rsi, rdx, r10, r8, r9
_RAX, _ORIG_RAX, _RIP = 10, 15, 16
_Registers = ctypes.c_uint64 * 27
_MINUS_ONE = (1 << 64) - 1


def is_possible() -> bool:
    """Whether the steps are known for this system."""
    return sys.platform.startswith("linux") and os.uname().machine == "x86_64"


def ask_to_be_traced() -> bool:
    """Let the parent trace this process, which stops when it next executes a program. False if the
    system refuses."""
    try:
        _ptrace(_TRACEME, 0)
    except OSError:
        return False
    return True


def call_at_exec(child: int, number: int, *arguments: int) -> int:
    """Let the child process ``child``, which has called `ask_to_be_traced` and is executing a
    program, make a system call before the program's first instruction, and then run on; return the
    call's result or a negative error number.

    Raises OSError, after which the child has ended (ProcessLookupError) or must not go on, because
    it may be left half changed. If this process dies meanwhile, the kernel kills the child.
    """
    if not _wait(child):
        raise _ended()
    try:
        _ptrace(_SETOPTIONS, child, 0, _EXITKILL)
        before = _registers(child)
        word = _ptrace(_PEEK, child, before[_RIP]) & _MINUS_ONE
        _ptrace(_POKE, child, before[_RIP], (word & ~0xFFFF) | SYSCALL)
        result = _step(child, before, before[_RIP], number, arguments)
        _ptrace(_POKE, child, before[_RIP], word)
    finally:
        _detach(child)
    return result


def call_in_running(pid: int, number: int, *arguments: int) -> int:
    """Let the main thread of a running process make a system call; return its result or a negative
    error number. The thread must mostly wait in system calls, one of which is restarted. Stopping
    it takes some milliseconds at most.

    Must be called in a thread that ends soon, which detaches from a process that cannot be stopped.
    Raises OSError if the process cannot be traced.
    """
    for _ in range(RETRIES):
        _ptrace(_SEIZE, pid)
        stopped = 0
        try:
            _ptrace(_INTERRUPT, pid)
            if not (stopped := _wait(pid, WAIT_S)):
                raise ProcessLookupError(errno.ESRCH, "the process has ended or does not stop")
            before = _registers(pid)
            address = before[_RIP] - 2
            waits = before[_ORIG_RAX] < 1 << 32  # -1 outside of a system call
            if waits and _ptrace(_PEEK, pid, address) & 0xFFFF == SYSCALL:
                return _step(pid, before, address, number, arguments)
        finally:
            if stopped:
                _detach(pid)
        time.sleep(RETRY_S)
    raise OSError(errno.EBUSY, "the process never waits")


def _step(
    pid: int, before: "ctypes.Array[ctypes.c_uint64]", address: int, number: int, words: object
) -> int:
    """Execute the instruction ``syscall`` at ``address`` in a stopped process, and give it the
    registers ``before`` back. Raises OSError, ProcessLookupError if a filter of system calls kills
    the process for it."""
    call = _Registers(*before)
    call[_RIP], call[_RAX] = address, number
    # Then it is in no system call that would be restarted.
    call[_ORIG_RAX] = _MINUS_ONE
    for position, value in zip(_ARGUMENTS, words, strict=False):  # type: ignore[call-overload]
        call[position] = value
    try:
        _ptrace(_SETREGS, pid, 0, ctypes.addressof(call))
        _ptrace(_SINGLESTEP, pid)
        stop = _wait(pid)
        if is_refused := stop == signal.SIGSYS:
            # A filter has answered with this signal, which is dropped here. The end of the step is
            # reported after it: a process that is released before dies of that SIGTRAP.
            _ptrace(_SINGLESTEP, pid)
            stop = _wait(pid)
        if not stop:
            raise _ended()
        return -errno.ENOSYS if is_refused else ctypes.c_int64(_registers(pid)[_RAX]).value
    finally:
        _restore(pid, before)


def _restore(pid: int, registers: "ctypes.Array[ctypes.c_uint64]") -> None:
    try:
        _ptrace(_SETREGS, pid, 0, ctypes.addressof(registers))
    except ProcessLookupError:
        return  # it was killed


def _registers(pid: int) -> "ctypes.Array[ctypes.c_uint64]":
    found = _Registers()
    _ptrace(_GETREGS, pid, 0, ctypes.addressof(found))
    return found


def _ended() -> ProcessLookupError:
    return ProcessLookupError(errno.ESRCH, "the process has ended")


def _wait(pid: int, seconds: float | None = None) -> int:
    """Wait until a traced process has stopped; return the signal that stopped it (with an event of
    ptrace above it), or 0 if it has ended, or not stopped in time. Its end is left for others to
    wait for."""
    options = os.WSTOPPED | os.WEXITED | os.WNOWAIT
    if seconds is None:
        found = os.waitid(os.P_PID, pid, options)
    else:
        deadline = time.monotonic() + seconds
        while (found := os.waitid(os.P_PID, pid, options | os.WNOHANG)) is None:
            if time.monotonic() >= deadline:
                return 0
            time.sleep(0)
    if found is None or found.si_code not in (os.CLD_TRAPPED, os.CLD_STOPPED):
        return 0
    return found.si_status


def _detach(pid: int) -> None:
    try:
        _ptrace(_DETACH, pid)
    except ProcessLookupError:
        return  # it was killed


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> int:
    call = ctypes.CDLL(None, use_errno=True).ptrace
    call.restype = ctypes.c_long
    ctypes.set_errno(0)
    result = int(call(request, pid, ctypes.c_void_p(address), ctypes.c_void_p(data & _MINUS_ONE)))
    # A word that was read may be -1.
    if result == -1 and (number := ctypes.get_errno()):
        raise OSError(number, os.strerror(number))
    return result
