"""Turn scores into decisions: error probabilities, thresholds, prediction sets, prediction intervals and a monitor."""
