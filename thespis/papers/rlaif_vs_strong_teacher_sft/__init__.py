"""A critical evaluation of AI feedback: learning from a critic's comparisons against imitation of a strong teacher."""
