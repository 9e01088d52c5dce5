"""Templates of the parts that ``thespis new`` writes: working modules, in which the names are replaced."""
