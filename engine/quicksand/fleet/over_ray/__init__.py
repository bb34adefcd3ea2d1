"""The back end of fleets that stands on Ray (docs/internals/fleet-ray.md).

Ray is the phone book and the reservation desk: it knows which machines are there, and a placement
group keeps a place. What is true stands on the machines' disks. Ray is the extra
``quicksand-tui[fleet]``; only `launching`, `ray_desk`, `desk_process` and `steward_actor` import
it, each of which runs in a process of its own.
"""
