"""Who is better, by playing against each other."""
