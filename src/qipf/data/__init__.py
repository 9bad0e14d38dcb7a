"""Inputs and labels: batches of any data, and one reader per file format."""
