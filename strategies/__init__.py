"""fedmia's server strategies on Flower's message API; one a file."""
