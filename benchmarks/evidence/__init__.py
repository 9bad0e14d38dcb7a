"""What the README and the docs quote, computed from results/ alone. The command is `benchmarks/reproduction.py`."""
