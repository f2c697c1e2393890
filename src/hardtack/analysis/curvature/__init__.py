"""Curvature of the loss at the trained weights."""
