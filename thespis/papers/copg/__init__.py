"""CoPG: contrastive policy gradient, which aligns language models with rewards of whole responses, off-policy."""
