"""GUI-Critic-R1 (Wanyan et al., 2025): a task of critiques of single commands, its measures and its trial."""
