"""Sandboxes that are started elsewhere when their machine is lost: leases, epochs, exported saves
(docs/internals/fleet.md, "Restart elsewhere")."""
