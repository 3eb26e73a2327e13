"""How each method is called and coloured, the same in every figure and on every page."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

WRONG = "#d7141a"
"""Red, for wrong labels and corrupted images alone; no method has it."""


@dataclass(frozen=True)
class Style:
    """A method's name for people, its colour and its marker, so that colour is never the only difference."""

    label: str
    colour: str
    marker: str


# Okabe and Ito's colour-blind safe hues as far as they go without their red, then others dark or light.
_STYLES = {
    "naive": Style("Naive", "#8c8c8c", "X"),
    "joint": Style("Joint", "#1a1a1a", "P"),
    "cumulative": Style("Cumulative", "#56b4e9", "p"),
    "replay": Style("Replay", "#e69f00", "o"),
    "replay_ewc": Style("Replay + EWC", "#7a4a12", "v"),
    "der": Style("DER", "#cc79a7", "<"),
    "icarl": Style("iCaRL", "#4b2e83", ">"),
    "crust": Style("CRUST", "#0072b2", "s"),
    "cosine_crust": Style("CosineCRUST", "#009e73", "D"),
    "cumulative_crust": Style("CRUST, all data in phase 1", "#6699cc", "h"),
    "cumulative_cosine_crust": Style("CosineCRUST, all data in phase 1", "#44aa99", "8"),
    "sift": Style("Sift", "#999933", "^"),
    "oracle": Style("Oracle", "#5c5c3d", "*"),
    "sift_oracle": Style("Sift's oracle", "#332288", "d"),
}
# For methods of one's own. None of ours has these colours: tables tell methods apart by colour alone.
_SPARE_COLOURS = ("#117733", "#aa4499", "#882255", "#1f6f78", "#9a7fd1", "#b8a46a", "#7fbf1f")
_SPARE_MARKERS = ("h", "d", "*", "8", "^")


def style_of(method: str) -> Style:
    """The style of a method. That of an unknown one depends on its name alone, so that it never changes."""
    if method in _STYLES:
        return _STYLES[method]
    number = crc32(method.encode())
    colour = _SPARE_COLOURS[number % len(_SPARE_COLOURS)]
    return Style(method, colour, _SPARE_MARKERS[number // len(_SPARE_COLOURS) % len(_SPARE_MARKERS)])
