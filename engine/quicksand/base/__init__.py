"""The ground of all rooms: the host (files, locks, processes, places), errors, and words.

Nothing here knows what a sandbox is. `regular`, `removal`, `injection` and `processes` import
nothing else of the engine: the keeper uses them, and every start waits for the keeper.
"""
