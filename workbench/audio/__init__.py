"""Sound on its way to a network: reading, filter bank, stacking, normalisation, voice activity. Knows no model."""
