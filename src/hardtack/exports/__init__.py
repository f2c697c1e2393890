"""Models as files for other software: ONNX, torch.export and a folder in Hugging Face's layout, each one checked."""

from hardtack.exports.job import Exported, export_module, export_run
from hardtack.exports.subject import ModelExport

__all__ = ["Exported", "ModelExport", "export_module", "export_run"]
