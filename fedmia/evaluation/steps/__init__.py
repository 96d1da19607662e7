"""The steps of scoring, once each: for a run, an encoder and a node alike."""
