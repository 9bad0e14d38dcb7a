"""Helpers for files, optional packages, progress bars and errors, used throughout the package."""
