"""The same audit of several encoders, or with several seeds: a curve, and a spread."""
