"""Plans of studies, written in TOML, and the registry of methods."""
