"""How large the weights of a model are, and how many are close to zero."""
