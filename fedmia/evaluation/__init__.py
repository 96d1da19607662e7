"""From models to scores: probes, pixels, attacks, sets, of a run, an encoder or a node."""
