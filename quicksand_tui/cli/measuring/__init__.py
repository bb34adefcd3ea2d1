"""The measurements of `benchmark`, a module for each kind of thing: starts, commands, checkpoints,
trees, clones, saves. Programs in bench/ measure with the same functions.

Imported by `cli.this_host.benchmark` when it runs: it loads the engine.
"""
