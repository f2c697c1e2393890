"""Named ways to measure: a paper's row of numbers for any model, by `hardtack evaluate RUN protocol=NAME`.

`protocol_run` measures a protocol; what is imported here only reads protocol files and needs no torch.
"""

from hardtack.studies.protocol import Column, Protocol, list_protocols, read_protocol

__all__ = ["Column", "Protocol", "list_protocols", "read_protocol"]
