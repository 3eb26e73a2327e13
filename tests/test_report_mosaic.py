"""Contact sheets: red exactly where something is wrong, whatever the images look like."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from continual_crust.errors import InputError
from continual_crust.report.drawing import png
from continual_crust.report.figures import contact_sheet
from continual_crust.report.mosaic import FRAME, GAP, ROW_GAP, mosaic
from continual_crust.report.styles import WRONG
from continual_crust.studies.memory import SIDE, evenly

RED = np.frombuffer(bytes.fromhex(WRONG[1:]), np.uint8)


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize(
    ("channels", "height", "width"), [(1, 8, 8), (3, 8, 8), (1, 28, 28), (3, 64, 48), (3, 224, 224)]
)
def test_red_pixels_are_exactly_the_frames_of_wrong_images(channels, height, width):
    rows = [torch.full((count, channels, height, width), 90, dtype=torch.uint8) for count in (4, 2, 3)]
    flags = [torch.tensor([1, 0, 1, 0]).bool(), torch.tensor([0, 1]).bool(), torch.tensor([1, 1, 1]).bool()]
    picture = mosaic(rows, flags)
    is_red = (picture == RED).all(axis=2)
    is_image = (picture == 90).all(axis=2)
    cell_height = (picture.shape[0] + ROW_GAP) // 3 - ROW_GAP
    cell_width = (picture.shape[1] + GAP) // 4 - GAP
    expected_red, expected_image = np.zeros_like(is_red), np.zeros_like(is_red)
    for row, row_flags in enumerate(flags):
        for column, clean in enumerate(row_flags.tolist()):
            top, left = row * (cell_height + ROW_GAP), column * (cell_width + GAP)
            inner = (
                slice(top + FRAME, top + cell_height - FRAME),
                slice(left + FRAME, left + cell_width - FRAME),
            )
            if not clean:
                expected_red[top : top + cell_height, left : left + cell_width] = True
            expected_red[inner] = False
            expected_image[inner] = True
    assert (is_red == expected_red).all()
    assert (is_image == expected_image).all()
    assert max(cell_height, cell_width) <= SIDE + 2 * FRAME
    rest = ~(is_red | is_image)
    assert (picture[rest] == 255).all()


def test_grey_and_rgb_images_keep_their_colours_and_order():
    grey = torch.tensor([0, 100, 200], dtype=torch.uint8).reshape(3, 1, 1, 1).expand(3, 1, 8, 8)
    colour = torch.tensor([[10, 20, 30], [40, 50, 60]], dtype=torch.uint8).reshape(2, 3, 1, 1).expand(2, 3, 8, 8)
    pitch, middle = SIDE + 2 * FRAME + GAP, FRAME + SIDE // 2
    for images, expected in ((grey, [[0] * 3, [100] * 3, [200] * 3]), (colour, [[10, 20, 30], [40, 50, 60]])):
        picture = mosaic([images], [torch.ones(len(images)).bool()])
        assert [picture[middle, middle + at * pitch].tolist() for at in range(len(images))] == expected


def test_a_row_may_be_empty():
    images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    picture = mosaic([images[:0], images], [torch.ones(0).bool(), torch.zeros(2).bool()])
    half = (picture.shape[0] - ROW_GAP) // 2
    assert (picture[:half] == 255).all()
    assert (picture[half + ROW_GAP :] == RED).all(axis=2).any()


@pytest.mark.parametrize(("count", "most"), [(0, 5), (5, 5), (6, 5), (300, 40), (10, 1)])
def test_evenly_gives_distinct_positions_in_order(count, most):
    at = evenly(count, most)
    assert len(at) == min(count, most)
    assert at == sorted(set(at))
    assert all(0 <= position < count for position in at)


def test_large_memories_are_sampled_and_say_so_but_purity_is_of_all():
    is_clean = torch.ones(300).bool()
    is_clean[1] = False  # not among the 40 shown
    figure = contact_sheet({"tank": torch.zeros(300, 1, 8, 8, dtype=torch.uint8)}, {"tank": is_clean})
    assert "40 of 300 shown" in texts(figure)
    assert "red frame = not clean: 1 of 300" in texts(figure)
    pixels = figure.axes[0].images[0].get_array()
    assert pixels.shape[1] == 40 * (SIDE + 2 * FRAME + GAP) - GAP
    assert not (np.asarray(pixels) == RED).all(axis=2).any()


def test_rows_are_labelled_with_class_and_purity():
    images = torch.zeros(4, 3, 16, 16, dtype=torch.uint8)
    flags = {"cat": torch.tensor([1, 1, 1, 0]).bool(), "dog": torch.zeros(4).bool()}
    shown = texts(contact_sheet({"cat": images, "dog": images}, flags, "A memory"))
    assert shown[:4] == ["cat", "75 %", "dog", "0 %"]
    assert "A memory" in shown
    assert "red frame = not clean: 5 of 8" in shown


def test_a_class_name_is_shown_as_it_is_even_if_it_looks_like_a_formula():
    images = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    assert png(contact_sheet({r"$\frac{$": images}, {r"$\frac{$": torch.ones(1).bool()})).startswith(b"\x89PNG")


def test_an_empty_memory_is_refused_in_one_sentence():
    with pytest.raises(InputError, match="memory is empty"):
        contact_sheet({"cat": torch.zeros(0, 1, 8, 8, dtype=torch.uint8)}, {"cat": torch.ones(0).bool()})
