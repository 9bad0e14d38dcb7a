"""What a study measures: plans in TOML that are checked before anything runs, and the registry of methods."""
