"""The parts of the main screen: lists, the tree of checkpoints, and the main area with its tabs."""
