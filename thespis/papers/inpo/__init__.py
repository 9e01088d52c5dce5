"""INPO: aligning language models with general preferences by no-regret learning."""
