"""From a plan to a store of results: the graph of cells, the engines that run it, and the store that keeps it."""
