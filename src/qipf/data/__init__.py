"""Inputs and labels as batches."""
