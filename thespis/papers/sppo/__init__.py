"""SPPO: self-play preference optimization of language models."""
