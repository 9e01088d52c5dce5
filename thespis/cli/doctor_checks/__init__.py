"""What the doctor looks at: probe worlds with known answers, and the user's own world."""
