"""The roles of fedmia's clients: honest, passive, active; one a file."""
