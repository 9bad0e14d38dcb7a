"""Run a trained model from any library and read its logits and features."""
