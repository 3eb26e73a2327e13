"""Figures say what was measured, in the same colours everywhere, and files are whole."""

from __future__ import annotations

import errno
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import torch

from continual_crust.data.noise import Noise
from continual_crust.data.sources import load_dataset
from continual_crust.data.stream import Stream
from continual_crust.errors import InputError
from continual_crust.report.drawing import png, save_png
from continual_crust.report.figures import (
    accuracy_matrix,
    accuracy_over_experiences,
    purity_by_method,
    write_run_figures,
)
from continual_crust.report.styles import WRONG, style_of
from continual_crust.report.tables import percent, summary_table
from continual_crust.strategies import STRATEGIES
from continual_crust.studies.memory import memory_by_class
from continual_crust.studies.result import RunResult
from continual_crust.studies.run import FinishedRun

METHODS = ["naive", "joint", "cumulative", "replay", "replay_ewc", "der", "icarl", "crust", "cosine_crust"]
RESULT = RunResult(
    method="crust",
    dataset="digits",
    noise="label:0.4",
    seed=0,
    accuracy_matrix=[[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.6, 0.5, 0.7]],
    accuracy=0.6,
    forgetting=0.25,
    purity=0.9,
    purity_per_class={"1": 0.9},
    purity_per_experience=[0.9, 0.9, 0.9],
    experiences=[["1"], ["2"], ["3"]],
    seconds=2.0,
    selection_seconds=1.0,
    device="cpu",
    versions={"torch": "2"},
)


def legend_of(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def finished_with(memory_of) -> FinishedRun:
    """A run over digits that remembers what `memory_of` says of each experience's samples."""
    stream = Stream(load_dataset("digits"), Noise.parse("label:0.4"), seed=0)
    memory = {
        label: memory_of(experience.samples.of_class(label)) for experience in stream for label in experience.classes
    }
    return FinishedRun(RESULT, SimpleNamespace(memory=memory), stream)


def test_a_curve_is_the_mean_over_seeds_of_the_mean_over_seen_experiences():
    other = replace(RESULT, seed=1, accuracy_matrix=[[0.8, 0.9, 0.9], [0.8, 0.8, 0.9], [0.8, 0.8, 0.8]])
    axes = accuracy_over_experiences([RESULT, other]).axes[0]
    assert np.allclose(axes.lines[0].get_ydata(), [0.9, 0.75, 0.7])
    spread = np.std([1.0, 0.8], ddof=1)
    corners = axes.collections[0].get_paths()[0].vertices
    assert np.isclose(corners[corners[:, 0] == 1][:, 1], 0.9 - spread).any()
    assert np.isclose(corners[corners[:, 0] == 1][:, 1], 0.9 + spread).any()


def test_an_experience_without_test_images_does_not_count():
    holes = replace(RESULT, accuracy_matrix=[[1.0, None, 0.0], [0.8, None, 0.0], [0.6, None, 0.8]])
    axes = accuracy_over_experiences([holes]).axes[0]
    assert np.allclose(axes.lines[0].get_ydata(), [1.0, 0.8, 0.7])
    assert png(accuracy_matrix(holes))


def test_the_legend_names_the_best_first_with_its_number():
    worse = replace(RESULT, method="replay", accuracy_matrix=[[0.1] * 3] * 3)
    assert legend_of(accuracy_over_experiences([worse, RESULT])) == ["CRUST  60 %", "Replay  10 %"]


def test_each_method_has_one_colour_in_all_figures_and_none_is_red():
    results = [replace(RESULT, method=method) for method in METHODS]
    lines = accuracy_over_experiences(results).axes[0].lines
    bars = purity_by_method(results).axes[0].patches
    to_hex = mpl.colors.to_hex
    assert sorted(to_hex(line.get_color()) for line in lines) == sorted(to_hex(bar.get_facecolor()) for bar in bars)
    assert len({style_of(method).colour for method in METHODS}) == len(METHODS)
    assert len({style_of(method).marker for method in METHODS}) == len(METHODS)
    for method in (*METHODS, "mine", "yours", "theirs"):
        red, green, blue = bytes.fromhex(style_of(method).colour[1:])
        assert style_of(method).colour != WRONG
        assert not (red > 150 and green < 80 and blue < 80), f"{method} could be taken for the red of wrong labels"


def test_an_unknown_method_keeps_its_name_and_style():
    assert style_of("mine").label == "mine"
    assert style_of("mine") == style_of("mine")


def test_an_unknown_method_has_the_colour_of_no_known_one():
    known = {style_of(method).colour for method in STRATEGIES}
    assert known.isdisjoint(style_of(f"method {number}").colour for number in range(100))


def test_purity_shows_every_seed_the_mean_and_random_choice():
    results = [replace(RESULT, seed=seed, purity=purity) for seed, purity in enumerate((0.8, 0.9, 1.0))]
    figure = purity_by_method([*results, replace(RESULT, method="naive", purity=None)])
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["CRUST"]
    assert np.isclose(axes.patches[0].get_width(), 0.9)
    assert np.allclose(sorted(axes.collections[0].get_offsets()[:, 0]), [0.8, 0.9, 1.0])
    assert np.isclose(axes.lines[0].get_xdata()[0], 0.6)
    assert "random choice: 1 − noise level = 60 %" in texts(figure)


def test_purity_without_any_memory_is_refused():
    with pytest.raises(InputError, match="keeps a memory"):
        purity_by_method([replace(RESULT, purity=None)])


def test_the_matrix_has_numbers_for_what_was_learned_only():
    assert texts(accuracy_matrix(RESULT)) == ["100", "80", "60", "60", "50", "70"]


def test_a_matrix_of_one_experience_leaves_room_for_its_names(recwarn):
    single = replace(RESULT, accuracy_matrix=[[0.8]], experiences=[[str(label) for label in range(10)]])
    assert png(accuracy_matrix(single))
    assert not recwarn.list  # of axes that collapsed to nothing


def test_letters_that_no_font_has_are_not_complained_of(recwarn):
    assert png(accuracy_matrix(replace(RESULT, experiences=[["日本語"], ["🦊"], ["3"]])))
    assert not recwarn.list


def test_a_large_matrix_has_no_numbers():
    large = replace(RESULT, accuracy_matrix=[[0.5] * 13] * 13, experiences=[[str(at)] for at in range(13)])
    assert texts(accuracy_matrix(large)) == []


@pytest.mark.parametrize(
    "other",
    [
        replace(RESULT, noise="label:0.2"),
        replace(RESULT, dataset="mnist"),
        replace(RESULT, accuracy_matrix=[[1.0]]),
    ],
)
def test_results_that_cannot_be_compared_share_no_figure(other):
    with pytest.raises(InputError, match="different"):
        accuracy_over_experiences([RESULT, other])
    with pytest.raises(InputError, match="no results"):
        accuracy_over_experiences([])


def test_the_summary_has_mean_and_sample_deviation_by_method_in_order():
    table = summary_table(
        [
            replace(RESULT, method="replay", purity=None),
            RESULT,
            replace(RESULT, seed=1, accuracy=0.8, purity=None),
        ]
    ).set_index("method")
    assert list(table.index) == ["replay", "crust"]
    assert table.loc["crust", "runs"] == 2
    assert np.isclose(table.loc["crust", "accuracy"], 0.7)
    assert np.isclose(table.loc["crust", "accuracy_std"], np.std([0.6, 0.8], ddof=1))
    assert np.isclose(table.loc["crust", "purity"], 0.9)
    assert np.isnan(table.loc["replay", "purity"])
    assert np.isnan(table.loc["replay", "accuracy_std"])
    assert percent(table.loc["replay", "purity"]) == "–"


def test_the_summary_keeps_different_noises_apart():
    table = summary_table([RESULT, replace(RESULT, noise="none", accuracy=0.9)])
    assert list(table["accuracy"]) == [0.6, 0.9]


def test_a_figure_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "figure.png"
    save_png(accuracy_matrix(RESULT), path)
    before = path.read_bytes()
    assert before == png(accuracy_matrix(RESULT))

    def full_disk(*_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        save_png(accuracy_matrix(replace(RESULT, method="replay")), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_run_figures_show_the_memory_and_its_true_cleanliness(tmp_path):
    finished = finished_with(lambda samples: samples[torch.arange(3)])
    images, is_clean = memory_by_class(finished)
    for label, samples in finished.strategy.memory.items():
        assert torch.equal(images[str(label)], finished.stream.clean_images_of(samples.ids))
        assert torch.equal(is_clean[str(label)], finished.stream.truth.labels[samples.ids] == label)
    written = write_run_figures(finished, tmp_path / "new" / "folder")
    assert [path.name for path in written] == ["accuracy.png", "accuracy_matrix.png", "memory.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_without_a_memory_there_is_no_contact_sheet_not_even_an_old_one(tmp_path):
    (tmp_path / "memory.png").write_bytes(b"of an earlier run")
    written = write_run_figures(finished_with(lambda samples: samples[:0]), tmp_path)
    assert [path.name for path in written] == ["accuracy.png", "accuracy_matrix.png"]
    assert not (tmp_path / "memory.png").exists()


def test_figures_leave_matplotlib_as_it_was():
    before = dict(mpl.rcParams)
    png(accuracy_over_experiences([RESULT]))
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("continual_crust, continual_crust.studies.run", "matplotlib"),
        ("continual_crust.report.demo_page", "matplotlib.pyplot"),
    ],
)
def test_importing_brings_no_more_than_it_should(imported, absent):
    code = f"import {imported}, sys; print({absent!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
