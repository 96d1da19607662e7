"""What features are good for, and what pixels alone give away."""
