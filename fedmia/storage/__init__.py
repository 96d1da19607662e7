"""What lies on the disk: a run's folder, models and updates of its rounds, arrays as bytes."""
