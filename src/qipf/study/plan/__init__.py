"""Plans in TOML, which are checked before anything runs, and the registry of methods."""
