"""ONNX models that ONNX Runtime runs: their outputs are read without PyTorch."""
