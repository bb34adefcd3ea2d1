"""Fleets: sandboxes over many machines (docs/internals/fleet.md).

A fleet says which machines there are, and on which of them a sandbox fits. From then on it is a
sandbox of another machine (`quicksand.hosted`). The truth is on the machines' disks: if everything
that a fleet knows is lost, no sandbox is lost.
"""
