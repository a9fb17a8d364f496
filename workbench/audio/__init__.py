"""Audio before the network: reading, filter bank, stacking, normalisation, voice activity. Knows no model."""
