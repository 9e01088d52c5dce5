"""How good is it: playing, statistics, comparison and the report."""
