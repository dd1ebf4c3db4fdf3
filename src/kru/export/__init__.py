"""Trained models for other places: ONNX, C99 for microcontrollers, JavaScript, torch.export programs."""

from kru.export.c99_export import C99Export, c99
from kru.export.folder import Export
from kru.export.js_export import javascript
from kru.export.onnx_export import onnx
from kru.export.source import Exportable
from kru.export.torch_program import program

__all__ = ["C99Export", "Export", "Exportable", "c99", "javascript", "onnx", "program"]
