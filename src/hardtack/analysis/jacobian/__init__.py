"""Singular values of the Jacobians of blocks, branches, groups of blocks and whole networks (paper 4)."""
