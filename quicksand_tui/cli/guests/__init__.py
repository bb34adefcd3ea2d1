"""Commands that start sandboxes and work in their guests, and mounts and ports between both."""
