"""format=onnx: one file with the normalisation inside, for batches of any size; read back with onnxruntime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hardtack.base.errors import UserError
from hardtack.base.limits import shorten
from hardtack.exports.comparison import Predict, from_numpy
from hardtack.exports.program import quiet, trace
from hardtack.exports.subject import OLDEST_OPSET, Subject

INPUT, OUTPUT, BATCH = "images", "logits", "batch"
MOST_BYTES = 2**31 - 2**24  # of a protobuf message, with room for the graph
_MISSING = "format=onnx needs onnx, onnxscript and onnxruntime: pip install 'hardtack[export]'"


def require(opset: int) -> None:
    """Refuse what cannot be written, before a model is loaded."""
    try:
        import onnx.defs
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise UserError(_MISSING) from None
    newest = min(torch.onnx._constants.ONNX_MAX_OPSET, onnx.defs.onnx_opset_version())
    if not OLDEST_OPSET <= opset <= newest:
        raise UserError(
            f"opset={opset}: torch writes ONNX opsets {OLDEST_OPSET} to {newest}"
            + ("; older runtimes need another exporter" if opset < OLDEST_OPSET else "")
        )


def write(subject: Subject, path: Path, facts: Mapping[str, Any], opset: int) -> None:
    """Write the file, and refuse one whose opset is not the one that was asked for."""
    import onnx

    size = sum(tensor.nbytes for tensor in subject.model.state_dict().values())
    if size > MOST_BYTES:
        raise UserError(f"the weights have {size / 2**30:.1f} GiB, and one ONNX file holds 2: use format=torch")
    program = trace(subject)
    try:
        with quiet():
            made = torch.onnx.export(
                program, dynamo=True, opset_version=opset, verbose=False, input_names=[INPUT], output_names=[OUTPUT]
            )
            assert made is not None
            proto = made.model_proto
    except Exception as error:
        raise UserError(
            f"{subject.provenance.model} cannot be written as ONNX ({type(error).__name__}: {shorten(error, 160)}); "
            "format=torch may do"
        ) from error
    written = next(item.version for item in proto.opset_import if item.domain in ("", "ai.onnx"))
    if written != opset:
        raise UserError(f"opset={opset}: the exporter wrote opset {written}; use opset={written}")
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = BATCH
    onnx.helper.set_model_props(proto, {"hardtack": json.dumps(facts)})
    path.write_bytes(proto.SerializeToString())


def read(path: Path) -> Predict:
    """The stored file in onnxruntime, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return from_numpy(lambda x: session.run([OUTPUT], {INPUT: x})[0])


def software() -> str:
    """What the file was checked with."""
    import onnxruntime

    return f"onnxruntime {onnxruntime.__version__}"
