"""The guest's screen, keyboard and pointer, of a machine with the option ``enable_display``.

Pictures come from QEMU's framebuffer or its VNC server, keys and pointers go through QMP; the guest
is asked about windows and the pointer. Recording runs in a process of its own.
"""
