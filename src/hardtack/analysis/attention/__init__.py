"""How stable a model's attention is, and what it attends to."""
