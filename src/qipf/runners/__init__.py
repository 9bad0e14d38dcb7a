"""Run a trained model of any library and read its logits and features."""
