"""Image packages: Python wheels that carry an image, published or installed. Their files are read;
none of their code is run.

From the bottom up: `names` (the names of packages and images), `contents` (the image in one),
`installed` (one in this environment), `wanted` (a requested one), `sources` (places that offer
them, and fetching), `unpacking` and `installing` (into the image store). Wheels themselves are
`quicksand_wheels`' matter.
"""
