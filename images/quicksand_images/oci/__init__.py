"""Container images (OCI, Docker) as images of sandboxes: where they come from (`places`,
`registry`), what they say (`documents`, `source`), their layers (`layers`, `tar`, `tree`), and what
is made of them (`writing`, `build`).

All of it comes from elsewhere: every size, name, depth and number is bounded before anything of
that size is made, and what is refused is named. A layer is applied to records in memory, so that no
name in it is ever looked up on this host.
"""
