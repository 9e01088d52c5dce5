"""Agent-RLVR: failed attempts are retried with guidance, and guided successes are preferred to the failures."""
