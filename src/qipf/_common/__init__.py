"""Files, optional packages, progress bars and errors, for every folder of the package."""
