"""f-DPO: direct preference optimization with any f-divergence to the reference."""
