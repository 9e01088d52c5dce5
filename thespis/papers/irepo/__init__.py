"""iREPO: empirical preference optimization by regression of implicit reward differences."""
