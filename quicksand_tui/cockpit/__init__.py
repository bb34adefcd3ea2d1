"""The parts of the main screen: the lists, the tree, and the main area with its tabs.

Imports `widgets`, `panes` and `views`; `screens.main` puts the parts together.
"""
