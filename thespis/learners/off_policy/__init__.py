"""Off-policy learners: targets, critics, temperatures and relabeling for replayed transitions."""
