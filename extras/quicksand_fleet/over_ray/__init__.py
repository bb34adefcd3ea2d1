"""The back end of fleets that stands on Ray (docs/internals/fleet-ray.md).

Ray is the phone book and the reservation desk: it knows the machines, and a placement group keeps a
place. The truth is on the machines' disks. Ray is the extra ``fleet``; only `launching`, `ray_desk`
and `desk_process` import it, which run in processes of their own: it writes to stdout, keeps
threads, and may wait without end.
"""
