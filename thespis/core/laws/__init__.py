"""Laws: checks that every method, environment, feedback and curriculum passes."""
