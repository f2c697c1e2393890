"""Named ways to measure: a paper's row of numbers for any model, by `hardtack evaluate RUN protocol=NAME`."""

from hardtack.protocols.protocol import Column, Protocol, list_protocols, read_protocol
from hardtack.protocols.row import ProtocolRow, measure_protocol, plan_protocol

__all__ = [
    "Column", "Protocol", "ProtocolRow", "list_protocols", "measure_protocol", "plan_protocol", "read_protocol",
]  # fmt: skip
