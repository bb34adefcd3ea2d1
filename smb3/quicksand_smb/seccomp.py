"""A filter of system calls for this process, assembled here without libseccomp.

It refuses the calls that a file server never makes. It has no list of allowed calls, since the
interpreter and the C library use other calls in each version. Calls that are newer than the list
fail with ENOSYS, as if the kernel did not know them.

See seccomp(2), linux/filter.h, linux/audit.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_ABOVE = 0x25  # BPF_JMP | BPF_JGT | BPF_K
_BITS = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

_ALLOW = 0x7FFF0000
_FAIL = 0x00050000  # SECCOMP_RET_ERRNO
_KILL = 0x80000000  # SECCOMP_RET_KILL_PROCESS

_NR, _ARCH = 0, 4  # offsets in struct seccomp_data; arguments are at 16, little-endian
_X32 = 0x40000000
_CLONE_THREAD = 0x00010000
_SET_USER_ID = 0o4000
_DEVICES = (0o020000, 0o060000)
_NEWEST = 469
"""The highest known system call when this was written (file_setattr, Linux 6.17)."""

# Numbers by architecture: x86_64 (arch/x86/entry/syscalls/syscall_64.tbl), then the others'
# (include/uapi/asm-generic/unistd.h); -1 where there is none.
_REFUSED = {
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, -1), "vfork": (58, -1),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "kill": (62, 129), "tkill": (200, 130),
    "socket": (41, 198), "socketpair": (53, 199), "bind": (49, 200), "connect": (42, 203),
    "listen": (50, 201), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, -1), "ioperm": (173, -1), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18), "syslog": (103, 116), "vhangup": (153, 58),
    "personality": (135, 92), "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145),
    "setregid": (114, 143), "setresuid": (117, 147), "setresgid": (119, 149),
    "setgroups": (116, 159), "setfsuid": (122, 151), "setfsgid": (123, 152), "capset": (126, 91),
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
}  # fmt: skip

_CLONE = (56, 220)
_CLONE3 = (435, 435)
# Calls that make or change modes, and which argument the mode is.
_MODES = {
    "chmod": (90, -1, 1), "fchmod": (91, 52, 1), "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2), "mkdir": (83, -1, 1), "mkdirat": (258, 34, 2),
    "openat": (257, 56, 3), "open": (2, -1, 2), "creat": (85, -1, 1),
}  # fmt: skip
_MKNOD = {"mknod": (133, -1, 1), "mknodat": (259, 33, 2)}

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


def _instruction(code: int, value: int, on_true: int = 0, on_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, on_true, on_false, value)


def _argument(index: int) -> int:
    return 16 + 8 * index


def program(machine: str) -> bytes:
    """Return the filter as an array of struct sock_filter. Raises KeyError for an unknown machine.

    Every test stands alone: it returns, or falls through to the next one. So no jump is longer than
    the few instructions of its own test.
    """
    arch, column = _ARCHITECTURES[machine]
    fail = _instruction(_RETURN, _FAIL | errno.EPERM)
    unknown = _instruction(_RETURN, _FAIL | errno.ENOSYS)
    load = _instruction(_LOAD, _NR)
    code = [
        _instruction(_LOAD, _ARCH),
        _instruction(_EQUAL, arch, 1, 0),
        _instruction(_RETURN, _KILL),
        load,
        # The numbers of the x32 ABI are above it, too.
        _instruction(_ABOVE, _NEWEST, 0, 1),
        unknown,
    ]
    for numbers in _REFUSED.values():
        if numbers[column] >= 0:
            code += [_instruction(_EQUAL, numbers[column], 0, 1), fail]
    # A filter cannot read its flags, which lie in memory. The C library falls back to clone.
    code += [_instruction(_EQUAL, _CLONE3[column], 0, 1), unknown]
    code += _test_argument(_CLONE[column], 0, [_instruction(_BITS, _CLONE_THREAD, 1, 0), fail])
    for call in _MODES.values():
        test = [_instruction(_BITS, _SET_USER_ID, 0, 1), fail]
        code += _test_argument(call[column], call[2], test)
    for call in _MKNOD.values():
        test = [_instruction(0x54, 0o170000)]  # BPF_ALU | BPF_AND | BPF_K
        for device in _DEVICES:
            test += [_instruction(_EQUAL, device, 0, 1), fail]
        code += _test_argument(call[column], call[2], test)
    return b"".join([*code, _instruction(_RETURN, _ALLOW)])


def _test_argument(number: int, index: int, test: list[bytes]) -> list[bytes]:
    """Test the lower half of an argument of this call, and then load the call's number again."""
    if number < 0:
        return []
    body = [_instruction(_LOAD, _argument(index)), *test, _instruction(_LOAD, _NR)]
    return [_instruction(_EQUAL, number, 0, len(body)), *body]


def install() -> None:
    """Install the filter on all threads of this process for good. no_new_privs must be set. Raises
    OSError, with ENOSYS for a machine whose call numbers are not known here."""
    machine = os.uname().machine
    number = {"x86_64": 317, "aarch64": 277}.get(machine)
    if number is None or struct.calcsize("P") != 8:
        raise OSError(errno.ENOSYS, f"no numbers of system calls for {machine}")
    code = program(machine)
    instructions = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(instructions))
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.argtypes = (ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_char_p)
    # SECCOMP_SET_MODE_FILTER with SECCOMP_FILTER_FLAG_TSYNC
    if syscall(number, 1, 1, head) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
