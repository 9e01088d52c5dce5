"""Improving language models with advantage-based offline policy gradients."""
