"""Tables of the results in a store, and verdicts on the paper's claims."""
