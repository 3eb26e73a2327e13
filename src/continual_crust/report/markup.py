"""What pages write as HTML in the same way."""

from __future__ import annotations

import base64
from html import escape


def text(words: str) -> str:
    """Text for HTML, with numbers kept on one line with their percent signs."""
    return escape(words).replace(" %", "&nbsp;%")


def image(kind: str, data: bytes, alt: str) -> str:
    """An image that needs no file; `kind` is ``png`` or ``svg+xml``."""
    return f'<img src="data:image/{kind};base64,{base64.b64encode(data).decode()}" alt="{escape(alt)}">'
