"""Recipes only, a file each."""
