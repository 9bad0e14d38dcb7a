"""A model and its scorer as one module or one ONNX graph."""
