"""From a score to a decision: probabilities of error, thresholds that keep a promise, prediction sets, a monitor."""
