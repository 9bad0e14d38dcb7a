"""Running a study: cells, the store that keeps their results, and the engines that run them."""
