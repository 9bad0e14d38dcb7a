"""From a store of results to the tables and claims of the paper."""
