"""Jacobian spectra without Jacobians: singular values of blocks, branches, stretches and networks (paper 4)."""

from hardtack.analysis.jacobian.block_parts import Layer, Piece, block_piece, branch_pieces, survey
from hardtack.analysis.jacobian.lanczos import Spectrum, lanczos
from hardtack.analysis.jacobian.power import power
from hardtack.analysis.jacobian.products import Jacobian, Matrices
from hardtack.analysis.jacobian.rows import bound, dense, dense_jacobian
from hardtack.analysis.jacobian.scalar_attention import printed_jacobian, scalar_attention, scalar_attention_jacobian
from hardtack.analysis.jacobian.spectra import Spectra

__all__ = [
    "Jacobian",
    "Layer",
    "Matrices",
    "Piece",
    "Spectra",
    "Spectrum",
    "block_piece",
    "bound",
    "branch_pieces",
    "dense",
    "dense_jacobian",
    "lanczos",
    "power",
    "printed_jacobian",
    "scalar_attention",
    "scalar_attention_jacobian",
    "survey",
]
