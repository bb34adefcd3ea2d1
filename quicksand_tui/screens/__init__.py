"""The screens of the app, each with its keys, and the dialogs over them.

Imports `cockpit`, `widgets`, `jobs`, `forms` and `views`. A screen gets the objects that it uses
when it is made; `dialogs` opens the dialogs that any screen may need.
"""
