"""UnifiedReward-Think: a judge that reasons is cold-started, learns its right judgments, then the pairs it failed."""
