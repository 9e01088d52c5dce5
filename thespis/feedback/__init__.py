"""Where the learning signal comes from; a file each."""
