"""What a data set looks like."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure

from continual_crust.data import Dataset
from continual_crust.report.mosaic import ROW_GAP, mosaic
from continual_crust.studies.memory import evenly

PER_CLASS = 12


def sample_sheet(dataset: Dataset) -> Figure:
    """A row of training images for each class, evenly chosen from the whole set."""
    rows = []
    for label in range(dataset.classes):
        own = (dataset.train_labels == label).nonzero().flatten()
        rows.append(dataset.train_images[own[evenly(len(own), PER_CLASS)]])
    picture = mosaic(rows, [torch.ones(len(row), dtype=torch.bool) for row in rows])
    height, width = picture.shape[:2]
    figure = Figure(figsize=(7.5, 6 * height / width + 0.5))
    axes = figure.add_axes((0.2, 0.02, 0.79, 0.9))
    axes.imshow(picture)
    axes.set_xticks([])
    pitch = (height + ROW_GAP) / dataset.classes
    middles = [pitch * row + (pitch - ROW_GAP) / 2 for row in range(dataset.classes)]
    axes.set_yticks(middles, dataset.class_names, parse_math=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    channels, rows_of_pixels, columns = dataset.image_shape
    kind = "grey" if channels == 1 else "colour"
    figure.suptitle(f"{dataset.name}: {columns}×{rows_of_pixels} pixels, {kind}", x=0.2, ha="left", size=11)
    return figure
