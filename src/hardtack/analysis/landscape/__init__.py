"""The loss as a function of the weights: its surface around the trained ones."""
