"""Re-ReST: failed attempts are corrected by a reflector that reads what the environment says, and then imitated."""
