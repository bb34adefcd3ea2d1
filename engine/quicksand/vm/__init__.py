"""The parts of a `Sandbox`: its life (start to removal), its guest, its checkpoints, its saves.

`Sandbox` is the public class and delegates to these; every part knows `Life`.
"""
