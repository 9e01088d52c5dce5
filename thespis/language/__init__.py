"""What knows token ids, templates and the files of checkpoints."""
