"""P3O: pairwise proximal policy optimization, a trajectory-wise policy gradient of relative feedback."""
