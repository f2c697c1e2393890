"""How sharply the loss bends at the trained weights."""
