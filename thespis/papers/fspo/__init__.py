"""FSPO: language models that adapt to a user by a few earlier choices."""
