"""Commands by which ssh, and editors that use it, reach sandboxes."""
