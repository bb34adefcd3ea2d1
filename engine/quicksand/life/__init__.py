"""The life of sandboxes, from start to removal, and the parts of a `Sandbox`: its life, guest,
checkpoints, mounts, saves and display. Cloning, removing, cleaning up, usage, and the
building of images that are missing.

`Sandbox` is the public class and delegates to these; each part knows `Life` (`sandbox_life`).
"""
