"""Contrastive learning-based agent modelling."""
