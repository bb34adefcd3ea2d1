"""Images: the store, resolution of names, and their files."""
