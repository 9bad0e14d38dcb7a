"""Tables and numbers of the README and the docs, from results/ alone. The command is `benchmarks/reproduction.py`."""
