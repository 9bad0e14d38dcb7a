"""Internal helpers for errors, files, memory limits, optional packages, printing and progress bars."""
