"""Epsilon from below: what guesses of membership refute, and what a Gaussian claim comes to."""
