"""Turn scores into decisions: error probabilities, thresholds with guarantees, prediction sets and a monitor."""
