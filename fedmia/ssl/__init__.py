"""Self-supervised methods: one a file, with their augmentation and local training."""
