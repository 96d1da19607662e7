"""How images are spread over clients: one rule a file."""
