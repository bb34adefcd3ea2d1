"""The guest's screen, keyboard and pointer, of a machine with the option ``enable_display``.

Pictures come from QEMU's framebuffer or its VNC server, keys and pointers go through QMP; what is
known of windows and the pointer is asked of the guest. Recording runs in a process of its own.
"""
