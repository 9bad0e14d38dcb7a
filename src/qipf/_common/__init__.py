"""Files, optional packages, progress bars and errors: what every folder of the package may use."""
