"""Cells (the units of work of a study), the store of their results, and the executors that run the cells."""
