"""Image packages: Python wheels that carry an image, published or installed. Their files are read;
no code of theirs is run.

From the bottom up: `names` (what packages and images are called), `contents` (what is in one),
`wheel` (one as a file), `installed` (one in this environment), `pages` and `sources` (where there
are some), `web` (how they get here), `unpacking` and `installing` (into the image store).
"""
