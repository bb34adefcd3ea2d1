"""Commands that start sandboxes and work in their guests: programs, terminals, files, screens, and
mounts and ports between both."""
