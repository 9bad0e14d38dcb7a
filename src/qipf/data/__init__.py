"""Read inputs, labels and tables, with one reader per file format."""
