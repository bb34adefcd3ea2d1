"""Container images (OCI, Docker) as images of sandboxes: their sources (`places`, `registry`),
documents (`documents`, `source`) and layers (`layers`, `tar`, `tree`), and the resulting images
(`writing`, `build`).

All of it comes from elsewhere: every size, name, depth and number is bounded before anything of
that size is made, and errors name the refused thing. A layer is applied to records in memory, so
that no name in it is ever looked up on this host.
"""
