"""What README and docs quote, computed from results/ alone. `benchmarks/reproduction.py` is the command."""
