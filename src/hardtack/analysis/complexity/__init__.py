"""Rademacher complexity of linear classes on images, and what it says about the dimension."""
