"""The ground of all rooms: the host (files, locks, processes, places), errors, and words.

Nothing here knows what a sandbox is. The keeper, which imports nothing else of the engine, uses
`processes`, `regular`, `removal` and `injection` as modules of their own.
"""
