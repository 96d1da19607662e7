"""Lower bounds of epsilon: what guesses of membership refute."""
