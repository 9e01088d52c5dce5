"""Random network distillation for the path planning of a guided vehicle."""
