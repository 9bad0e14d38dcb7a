"""Tables and numbers in the README and the docs, computed only from results/ by `benchmarks/reproduction.py`."""
