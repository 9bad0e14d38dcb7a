"""What is read from a network: outputs, features and weights."""
