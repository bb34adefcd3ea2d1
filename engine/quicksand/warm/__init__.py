"""Starting: booting, or going on from a template (a machine that was booted once) or a spare (one
that already waits), and making both in the background.

Templates and spares are used often, so they are checked before they are committed: clock, agent,
network, entropy, memory (`template_maker`).
"""
