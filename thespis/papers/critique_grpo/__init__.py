"""Critique-GRPO: initial answers and critique-guided refinements in one group of GRPO."""
