"""The code interpreter of the image `code-interpreter`: an HTTP server in the guest that runs cells
in Jupyter's kernels, as clients of E2B's `e2b-code-interpreter` ask for it.

It is copied into the image and runs there with the guest's Python; nothing on the host imports it.
It cannot tell clients apart: it listens on the guest's loopback, and the API's server, which leads
there, has already checked their rights.
"""
