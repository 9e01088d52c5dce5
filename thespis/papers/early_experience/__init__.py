"""Agent learning via early experience: what follows on one's own attempts is learnt before an expert is imitated."""
