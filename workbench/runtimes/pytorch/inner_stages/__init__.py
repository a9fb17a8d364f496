"""Values inside layers, attention weights and gradients: what a trace or a view reads from a network."""
