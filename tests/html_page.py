"""What a browser would find on a page, for tests without one."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """Tags with their attributes, and the text between them that a person would read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] not in ("style", "script"):
            self.words += data + " "

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]
