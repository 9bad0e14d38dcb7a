"""Tables and numbers of the README and the docs, computed from results/ by `benchmarks/reproduction.py`."""
