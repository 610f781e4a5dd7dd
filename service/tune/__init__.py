"""Settings for a model, from what was measured of it."""
