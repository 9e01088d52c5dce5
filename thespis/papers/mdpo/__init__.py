"""Mirror descent policy optimisation, on and off policy."""
