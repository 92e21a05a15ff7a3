"""How a model becomes a chain of layers, and how a stage is cut out of it."""
