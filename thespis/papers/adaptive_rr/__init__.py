"""A replay ratio that rises once the critic's plasticity has recovered."""
