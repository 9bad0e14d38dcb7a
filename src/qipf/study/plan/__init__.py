"""What a study measures: plans in TOML, checked before anything runs."""
