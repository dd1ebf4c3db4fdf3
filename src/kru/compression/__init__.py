"""Trained dense layers replaced by Kronecker layers with far fewer parameters."""

from kru.compression.compress import Compressed, compress
from kru.compression.report import CompressedMatrix, CompressionReport

__all__ = ["Compressed", "CompressedMatrix", "CompressionReport", "compress"]
