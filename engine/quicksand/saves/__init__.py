"""Disks of sandboxes as files to keep and to carry elsewhere."""
