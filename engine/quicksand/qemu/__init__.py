"""The hypervisor that is there: its command line, its monitor (QMP), the keeper that is its parent,
its binaries and accelerators; planning what a machine gets, resuming a guest, stopping it.

========================= ======================================================================
`planning`, `command`     from a record to QEMU's arguments
`process`                 starting QEMU under its keeper
`keeper`, `keeper_parts`  the keeper: a program of its own, never imported
`keeper_link`             a client's connection to a keeper
`keeper_check`            whether a sandbox has its keeper
`keeper_successor`        a new keeper for a QEMU whose keeper was killed
`started_machine`            a machine that this process has started
`second_machine`          a second QEMU under the same keeper, for a revert
`qemu_hypervisor`, `qmp`  QEMU as a `Hypervisor` (base), in QMP commands
`guest_resume`            letting a guest go on that stood still
`stopping`, `orphans`     ends of machines
========================= ======================================================================
"""
