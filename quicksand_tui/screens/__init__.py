"""The screens of the app, each with its keys, and the dialogs over them.

Imports `cockpit`, `widgets`, `jobs`, `forms` and `views`. A screen gets what it uses when it is
made; `dialogs` opens those that any screen may ask for.
"""
