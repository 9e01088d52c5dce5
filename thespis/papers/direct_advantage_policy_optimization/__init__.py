"""Improving multi-step reasoning with direct advantage policy optimisation."""
