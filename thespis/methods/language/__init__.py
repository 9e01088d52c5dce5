"""Recipes for actors that speak."""
