"""RTO: reinforced token optimization, PPO of language models with the log-ratio of a DPO model as reward of tokens."""
