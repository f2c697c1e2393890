"""How a perturbation grows from block to block."""
