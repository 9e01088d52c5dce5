"""RISE-Judge: supervised judgments, then DPO on the pairs that the judge got wrong."""
