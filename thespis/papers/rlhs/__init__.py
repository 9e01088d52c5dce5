"""RLHS: feedback in hindsight, by raters who see a simulated outcome of what they were advised."""
