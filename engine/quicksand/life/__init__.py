"""The life of sandboxes, from start to removal, and the parts of a `Sandbox`: its life, guest,
checkpoints, mounts, saves and display. Also cloning, removing, cleaning up, usage, and building
missing images.

`Sandbox` is the public class and delegates to these; each part knows `Life` (`sandbox_life`).
"""
