"""WAFER-QA: what a language model gives up after one critique that misleads it."""
