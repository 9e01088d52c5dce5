"""Papers: what each claims and how it is tried."""
