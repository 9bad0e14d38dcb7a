"""Turn scores into decisions: probabilities of error, guaranteed thresholds, prediction sets and a monitor."""
