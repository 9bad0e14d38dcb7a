"""Run a study: its cells, the store that keeps their results, and the executors."""
