"""Image packages: Python wheels that carry an image, published or installed. Their files are read;
none of their code is run.

From the bottom up: `names` (the names of packages and images), `contents` (the image in one),
`wheel` (one as a file), `installed` (one in this environment), `indexes` and `sources` (places that
offer them), `web` (fetching them), `unpacking` and `installing` (into the image store).
"""
