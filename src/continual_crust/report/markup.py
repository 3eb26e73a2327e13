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


def whole_page(title: str, style: str, body: str) -> str:
    """A whole page; `style` and `body` must be CSS and HTML already."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}</body>
</html>
"""
