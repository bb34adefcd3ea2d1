"""Fleets: sandboxes over many machines (docs/internals/fleet.md).

A fleet says which machines there are, and on which of them a sandbox fits. The sandbox itself is
then one of another machine, as `quicksand.hosted` has it. What is true stands on the disks of the
machines: losing all that a fleet knows loses no sandbox.
"""
