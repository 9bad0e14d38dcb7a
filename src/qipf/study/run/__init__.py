"""Run a study: its cells, the store of their results, and the executors."""
