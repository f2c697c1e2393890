"""What adversarial perturbations look like, and how other models classify them (Debenedetti 2022)."""
