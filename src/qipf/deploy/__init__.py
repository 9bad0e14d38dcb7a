"""Combine a model and its scorer in one module or one ONNX graph."""
