"""Tables and claims from a store of results."""
