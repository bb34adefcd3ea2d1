"""The parts of the main screen: the lists, the tree, and the main area with its tabs.

Imports `widgets`, `panes`, `views` and, for what its keys begin, `jobs`; `screens.main` puts the
parts together.
"""
