"""What the actor faces next; a file each."""
