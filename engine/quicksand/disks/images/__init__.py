"""Images: the store, the resolution of names, and reading and writing their files."""
