"""Runtime: random keys, exactness across seeds and devices, processes, caches and disk."""
