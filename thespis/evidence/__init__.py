"""Evidence: declared trials of papers' claims, their statistics and records."""
