"""Critics: values of states and actions, mixers of team values, and models of action effects."""
