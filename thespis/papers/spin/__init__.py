"""SPIN: self-play fine-tuning converts weak language models to strong language models."""
