"""Plans in TOML, checked before anything runs, and the registry of methods."""
