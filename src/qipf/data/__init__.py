"""Read inputs and labels in batches, with one reader per file format."""
