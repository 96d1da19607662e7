"""fedmia as a Flower app: `flwr run .`, on simulated nodes or on a deployment's."""
