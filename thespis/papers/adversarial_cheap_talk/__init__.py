"""Adversarial cheap talk."""
