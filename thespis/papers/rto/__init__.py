"""RTO: PPO whose reward is a reward model's for the text and DPO's for its tokens, from the same comparisons."""
