"""Optional libraries of language models, imported when they are needed."""

from __future__ import annotations

from typing import Any

from thespis.core.errors import missing_extra


def import_tokenizers() -> Any:
    """Import the ``tokenizers`` library. Raises ``UserError`` if it is not installed."""
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.normalizers
        import tokenizers.pre_tokenizers
    except ImportError as error:
        raise missing_extra("tokenizers", "language") from error
    return tokenizers


def import_gguf() -> Any:
    """Import ``gguf``. Raises ``UserError`` if it is not installed."""
    try:
        import gguf
        import gguf.quants
    except ImportError as error:
        raise missing_extra("gguf", "language") from error
    return gguf
