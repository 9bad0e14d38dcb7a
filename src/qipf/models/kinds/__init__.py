"""Models that make several predictions per input: tokens, pixels, and several labels. One file per kind."""
