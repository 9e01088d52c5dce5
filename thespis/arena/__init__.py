"""Arena: matches and tournaments between players, with ratings."""
