"""The parts of the main screen: the lists, the tree, and the main area with its tabs.

Imports `widgets`, `panes`, `views`, and `jobs` for actions of its keys; `screens.main_screen` puts
the parts together.
"""
