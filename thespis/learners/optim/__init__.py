"""Optimization: optimizers, minibatches, normalizers of observations and returns."""
