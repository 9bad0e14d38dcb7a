"""Cells of a study, the store of their results, and the executors that run them."""
