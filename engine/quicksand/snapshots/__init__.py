"""Checkpoints of a running sandbox (its memory, devices and disk) and reverting to them.

Words used here and in docs/internals/snapshots.md:

- a *checkpoint*'s record on disk is a `Node` (node.json); a *tier* is a way to keep its memory;
- a *layer* is one qcow2 file of the disk; the guest writes to the top layer, checkpoints freeze it;
- a *machine* is one QEMU process of a sandbox; a *run* names one from its start to its end;
- the *head* (head.json) says which layers make up the present disk, which checkpoint it descends
  from and which machine writes to it;
- the *history* of a sandbox is its layers, checkpoints and head.
"""
