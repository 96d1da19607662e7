"""From finished rounds, or a released encoder, to scores."""
