"""Deployment: trained control policies as ONNX models, or as arrays with a program that needs NumPy alone."""
