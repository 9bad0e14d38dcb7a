"""Study plans, written in TOML, and the registry of methods."""
