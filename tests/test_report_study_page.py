"""The report works however far a study has come, needs nothing but itself, and trusts no name."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from continual_crust.data.noise import Noise
from continual_crust.data.stream import Stream
from continual_crust.errors import InputError
from continual_crust.report.cells import build_grid
from continual_crust.report.curves import forgotten_so_far, seen_so_far, std_over_runs
from continual_crust.report.drawing import png, svg
from continual_crust.report.figures import accuracy_matrix, accuracy_over_experiences
from continual_crust.report.matrix_viewer import Matrix, viewer
from continual_crust.report.significance import rankings
from continual_crust.report.study_data import read_studies
from continual_crust.report.study_figures import critical_difference_diagram, over_experiences
from continual_crust.report.study_report import write_report
from continual_crust.report.study_sections import significance_section
from continual_crust.studies.folder import StudyFolder
from continual_crust.studies.memory import KEPT, load_memory, save_memory
from continual_crust.studies.run import FinishedRun
from continual_crust.studies.study_file import find_study
from html_page import Page
from test_report_study_data import config, result_of, write_memory, write_run, write_study

EVIL = "\"><script>alert(1)</script>'&$x$"


def page_of(folder, out=None) -> Page:
    return Page(write_report(folder, out).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two methods, three noise levels, two seeds; one run begun, one broken."""
    folder = write_study(tmp_path_factory.mktemp("some") / "study", "id: some\ntitle: Some runs\n")
    for seed in (0, 1):
        for method in ("joint", "replay", "crust"):
            for noise, accuracy in (("none", 0.9), ("label:0.4", 0.6 + 0.1 * seed)):
                run = config(method, noise, seed)
                made = write_run(folder, run, result_of(run, accuracy))
                if method != "joint":
                    write_memory(made)
    write_run(folder, config("crust", "label:0.2"))
    write_run(folder, config("crust", "label:0.4", 2), name="broken").joinpath("config.yaml").write_text("[")
    return folder


@pytest.fixture(scope="module")
def report(study):
    return write_report(study)


@pytest.fixture(scope="module")
def page(report):
    return Page(report.read_text(encoding="utf-8"))


def test_the_report_lies_in_the_study(study, report):
    assert report == study / "report" / "index.html"
    tables = {path.name for path in (report.parent / "tables").iterdir()}
    for measure in ("accuracy", "forgetting", "purity", "seconds", "selection_seconds"):
        assert {f"some-{measure}.{ending}" for ending in ("md", "csv", "tex")} <= tables
    figures = {path.name for path in (report.parent / "figures").iterdir()}
    for name in (
        "some-digits-noise-accuracy",
        "some-digits-label-0.4-experiences-forgetting",
        "some-digits-label-0.4-experiences-purity",
        "some-digits-label-0.4-memory-CRUST",
    ):
        assert {f"{name}.svg", f"{name}.png"} <= figures


def test_the_page_needs_nothing_but_itself(report, page):
    text = re.sub(r"base64,[A-Za-z0-9+/=]+", "", report.read_text(encoding="utf-8"))
    assert not re.search(r"https?://|url\(|@import", text)
    assert not page.all("link")
    assert [set(script) for script in page.all("script")] == [set()]
    assert page.all("img")
    assert all(
        image["src"].startswith(("data:image/svg+xml;base64,", "data:image/png;base64,")) for image in page.all("img")
    )


def test_every_image_says_what_it_shows(page):
    alts = [image["alt"] for image in page.all("img")]
    assert all(alts)
    assert "Images that CRUST keeps; 2 of 6 are not clean. Clean: a 2 of 3, b 2 of 3." in alts
    assert any(alt.startswith("Accuracy by noise level. Joint 90.0 % at 0 %, 65.0 % at 40 %") for alt in alts)


def test_the_page_tells_what_is_done_missing_and_broken(page):
    words = re.sub(r"\s+", " ", page.words)
    assert "12 of 13 runs finished, 1 unreadable" in words
    assert "65.0 ± 7.1" in words
    assert "missing" in words
    assert "n = 0 of 1" in words
    assert "broken" in words
    assert "config.yaml is not YAML" in words
    assert "digits, 20 % flipped labels, CRUST, seed 0" in words


def test_the_page_can_be_used_with_a_keyboard(page):
    assert {"type": "range"}.items() <= page.all("input")[0].items()
    assert [button["type"] for button in page.all("button")] == ["button", "button"]
    scrolling = [division for division in page.all("div") if "scroll" in division.get("class", "").split()]
    assert scrolling
    assert all(division["tabindex"] == "0" and division["aria-label"] for division in scrolling)


def test_a_study_without_any_run_has_a_page(tmp_path):
    page = page_of(write_study(tmp_path / "study"), tmp_path / "elsewhere")
    assert "0 of 0 runs finished" in page.words
    assert not page.all("img")
    assert not (tmp_path / "study" / "report").exists()


def test_a_paper_table_without_any_run_is_all_missing(tmp_path):
    page = page_of(write_study(tmp_path / "study", "id: a\ntitle: b\ntable: mnist_label_100\n"))
    assert page.words.count("missing") == 3 * 6 * 2
    assert "paper 97 ± 0" in page.words


def test_settings_that_are_not_the_papers_are_told(tmp_path):
    study = write_study(tmp_path / "study", "id: a\ntitle: b\ntable: mnist_label_100\n")
    write_run(study, config(dataset="mnist", memory=10))
    words = re.sub(r"\s+", " ", page_of(study).words)
    assert "Not all settings are the paper’s" in words
    assert "10 (paper 300)" in words


def test_what_the_paper_says_nothing_of_is_told_where_it_is_unusual(tmp_path):
    study = write_study(tmp_path / "study", "id: a\ntitle: b\ntable: mnist_label_300\n")
    run = config(dataset="mnist", memory=300)
    write_run(study, run)
    plain = page_of(study).words
    assert "Shift" not in plain
    assert "Not all settings" not in plain
    write_run(study, replace(run, seed=1, training=replace(run.training, shift=0.125, precision="bfloat16")))
    words = re.sub(r"\s+", " ", page_of(study).words)
    assert "Not all settings are the paper’s" in words
    assert "Precision Shift" in words
    assert "bfloat16, float32 0, 0.125" in words


def test_other_numbers_of_classes_at_a_time_are_told(tmp_path):
    study = write_study(tmp_path / "study", "id: a\ntitle: b\ntable: mnist_label_300\n")
    run = config(dataset="mnist", memory=300)
    write_run(study, run)
    assert "Classes at" not in page_of(study).words
    write_run(study, replace(run, seed=1, classes_per_experience=3, crop=True))
    words = re.sub(r"\s+", " ", page_of(study).words)
    assert "Not all settings are the paper’s" in words
    assert "Classes at a time Cropped" in words
    assert "1, 3 no, yes" in words


def test_many_studies_share_a_page_and_no_files(tmp_path):
    for name in ("a", "b"):
        folder = write_study(tmp_path / name, "id: same\ntitle: Same\n")
        write_run(folder, config(), None)
    page = page_of(tmp_path)
    assert [link["href"] for link in page.all("a")] == ["#same", "#same-2"]
    assert {"same-accuracy.csv", "same-2-accuracy.csv"} <= {
        path.name for path in (tmp_path / "report/tables").iterdir()
    }


def test_what_an_earlier_report_wrote_goes_and_what_a_person_put_there_stays(tmp_path):
    study = write_study(tmp_path / "study")
    for method in ("replay", "crust"):
        write_memory(write_run(study, config(method), result_of(config(method)), name=method))
    report = write_report(study).parent
    theirs = [report / "figures" / "small-mine.png", report / "tables" / "notes.md", report / "notes.md"]
    for path in theirs:
        path.write_text("mine")
    with (report / "files-of-this-report.txt").open("a") as listed:
        listed.write("notes.md\nfigures/../notes.md\n../study.yaml\n")  # lies outside of what a report may remove
    before = {path.name for path in report.rglob("*")}
    shutil.rmtree(study / "runs" / "replay")
    write_report(study)
    gone = before - {path.name for path in report.rglob("*")}
    assert gone == {f"small-digits-label-0.4-memory-Replay.{ending}" for ending in ("svg", "png")}
    assert (study / "study.yaml").exists()


def test_no_name_becomes_markup_or_a_path(tmp_path):
    study = write_study(tmp_path / "study", yaml.safe_dump({"id": f"../x{EVIL}", "title": EVIL}))
    run = config(dataset=EVIL)
    made = write_run(study, run, result_of(run, classes=(EVIL, "b", "c", "d"), device=EVIL, versions={EVIL: EVIL}))
    write_memory(made, (EVIL, "../b"))
    (study / "runs" / "<i>broken").mkdir()
    (study / "runs" / "<i>broken" / "config.yaml").write_text(f"method: {EVIL!r}\n")
    written = write_report(study)
    page = Page(written.read_text(encoding="utf-8"))
    assert len(page.all("script")) == 1
    assert not page.all("i")
    assert all(set(image) == {"src", "alt"} for image in page.all("img"))
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert EVIL in page.words.partition("runs finished")[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study"]
    for path in written.parent.rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", path.name)


def test_where_nothing_can_be_written_it_says_so(tmp_path):
    study = write_study(tmp_path / "study")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        write_report(study, tmp_path / "file")


@pytest.mark.skipif(find_spec("scikit_posthocs") is None, reason="scikit-posthocs is not installed")
def test_several_data_sets_are_tested_and_ranked(tmp_path):
    study = write_study(tmp_path / "study", "id: a\ntitle: b\n")
    for place, dataset in enumerate(("digits", "mnist", "cifar10", "mstar")):
        for order, method in enumerate(("replay", "crust", "cosine_crust")):
            run = config(method, dataset=dataset)
            write_run(study, run, result_of(run, 0.3 + 0.2 * order + 0.01 * place))
    page = page_of(study)
    words = re.sub(r"\s+", " ", page.words)
    assert "Accuracy, 40 % flipped labels: CosineCRUST against the others" in words
    assert "Friedman’s test over digits, mnist, cifar10, mstar: χ² = 8.0, p = 0.018" in words
    assert words.count("↑") >= 3
    assert any("Critical difference 1.66" in image["alt"] for image in page.all("img"))


@pytest.mark.skipif(find_spec("scikit_posthocs") is None, reason="scikit-posthocs is not installed")
def test_small_p_values_without_arrows_are_explained(tmp_path):
    """On two data sets that agree Conover's p is 0 for every pair, and Friedman's not small at all."""
    study = write_study(tmp_path / "study", "id: a\ntitle: b\n")
    for dataset in ("digits", "mnist"):
        for order, method in enumerate(("replay", "crust", "cosine_crust")):
            run = config(method, dataset=dataset)
            write_run(study, run, result_of(run, 0.3 + 0.2 * order))
    found = rankings(build_grid(read_studies(study)[0]))
    words = Page(significance_section(found, [""] * len(found))).words
    assert "< 0.001" in words
    assert "As Friedman’s p is above 0.05, no method is called different from another, however small" in words


def test_ranks_within_the_critical_difference_are_joined():
    import pandas as pd

    ranks = pd.Series({"A": 1.0, "B": 1.5, "C": 3.0, "D": 3.2})
    shown = critical_difference_diagram(ranks, 1.9, {name: name.lower() for name in "ABCD"})
    bars = [line.get_xdata() for line in shown.figure.axes[0].lines if line.get_linewidth() == 3.2]
    assert np.allclose(bars, [[0.94, 1.56], [1.44, 3.26]])
    assert shown.alt.startswith("Average ranks, 1 is best: A 1.00, B 1.50")


def test_six_rows_of_one_method_look_different(tmp_path):
    study = write_study(tmp_path / "study", "id: a\ntitle: b\n")
    for memory in (5, 25, 100):
        for rule in ("centrality", "facility_location"):
            run = config(memory=memory, rule=rule)
            write_run(study, run, result_of(run))
    grid = build_grid(read_studies(study)[0])
    shown = over_experiences(grid, grid.columns[0], "accuracy")
    lines = shown.figure.axes[0].lines
    assert len({(repr(line._unscaled_dash_pattern), line.get_fillstyle()) for line in lines}) == len(grid.rows) == 6


def test_a_critical_difference_is_drawn_as_long_as_it_is():
    import pandas as pd

    shown = critical_difference_diagram(pd.Series({"A": 1.0, "B": 2.0, "C": 3.0}), 2.34, dict.fromkeys("ABC", "crust"))
    axes = shown.figure.axes[0]
    (ruler,) = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 1.6]
    assert np.allclose(ruler, [1, 3.34])
    assert axes.get_xlim()[1] > 3.34


def finished(size: int, kept: int = 50) -> FinishedRun:
    """A learner that remembers `kept` images of both classes of a made-up stream."""
    from continual_crust.data import Dataset

    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (200, 3, size, size), dtype=torch.uint8, generator=generator)
    labels = torch.arange(200) % 2
    data = Dataset("made", images, labels, images[:4], labels[:4], ("cat", "dog"))
    stream = Stream(data, Noise.parse("label:0.5"), seed=0)
    samples = stream[0].samples
    memory = {label: samples.of_class(label)[torch.arange(kept)] for label in (0, 1)} if kept else {}
    return FinishedRun(result_of(config()), SimpleNamespace(memory=memory), stream)


def test_a_memory_comes_back_as_it_was(tmp_path):
    run = finished(size=8)
    save_memory(run, tmp_path / "memory.npz")
    cat, dog = load_memory(tmp_path / "memory.npz")
    assert (cat.name, cat.total, dog.name, dog.total) == ("cat", 50, "dog", 50)
    kept = run.strategy.memory[0]
    truth = run.stream.truth.is_clean(kept.ids)
    assert cat.clean == int(truth.sum())
    assert len(cat.images) == len(cat.is_clean) == KEPT
    assert torch.equal(cat.images[0], kept.images[0])
    assert torch.equal(cat.images[-1], kept.images[-1])
    assert bool(cat.is_clean[-1]) == bool(truth[-1])


def test_large_images_are_kept_small(tmp_path):
    save_memory(finished(size=96), tmp_path / "memory.npz")
    assert load_memory(tmp_path / "memory.npz")[0].images.shape[1:] == (3, 40, 40)


def test_where_nothing_is_remembered_no_old_memory_stays(tmp_path):
    path = tmp_path / "memory.npz"
    save_memory(finished(size=8), path)
    save_memory(finished(size=8, kept=0), path)
    assert not path.exists()
    assert load_memory(path) is None


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "pickle", "shape", "missing"])
def test_a_damaged_memory_is_as_good_as_none(tmp_path, damage):
    path = tmp_path / "memory.npz"
    save_memory(finished(size=8), path)
    whole = dict(np.load(path))
    match damage:
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(path.read_bytes()[:-200])
        case "text":
            path.write_text("images")
        case "pickle":
            np.savez(path, **whole | {"names": np.array([{"a": 1}, None], dtype=object)})
        case "shape":
            np.savez(path, **whole | {"is_clean": whole["is_clean"][:3]})
        case "missing":
            np.savez(path, names=whole["names"])
    assert load_memory(path) is None


def test_curves_end_where_the_result_does():
    result = result_of(config(), accuracy_matrix=[[1.0, 0.0, 0.0], [0.8, 1.0, 0.0], [0.6, 0.7, 1.0]])
    assert np.allclose(seen_so_far(result), [1.0, 0.9, 2.3 / 3])
    assert np.allclose(forgotten_so_far(result), [np.nan, 0.2, 0.3], equal_nan=True)


def test_the_spread_of_a_curve_is_that_of_the_values_that_are_known():
    values = np.array([[1.0, 0.2, 0.5], [3.0, 0.6, np.nan], [5.0, np.nan, np.nan]])
    assert np.allclose(std_over_runs(values), [2.0, np.std([0.2, 0.6], ddof=1), np.nan], equal_nan=True)


def test_the_matrix_tells_where_it_leaves_out_classes():
    experiences = [["a long name of a class", "b", "c", "d", "e"], ["f"], ["g"]]
    shown = Page(viewer([Matrix("crust", [result_of(config(), experiences=experiences)])], "x"))
    assert "1: a long name of a cl…, b, c, d, …" in shown.words


def test_joint_training_is_judged_on_everything():
    joint = result_of(config("joint"), accuracy_matrix=[[0.9, 0.6, 0.3]])
    line = accuracy_over_experiences([joint, result_of(config())]).axes[0].lines
    (alone,) = [one for one in line if len(one.get_xdata()) == 1]
    assert (alone.get_xdata()[0], round(alone.get_ydata()[0], 6)) == (3, 0.6)
    assert [text.get_text() for text in accuracy_matrix(joint).axes[0].texts] == ["90", "60", "30"]


def test_figures_leave_no_trace_and_repeat_themselves():
    before = dict(mpl.rcParams)
    figures = [accuracy_matrix(result_of(config())) for _ in range(2)]
    assert svg(figures[0]) == svg(figures[1])
    assert png(figures[0]) == png(figures[1])
    assert dict(mpl.rcParams) == before


def test_a_study_of_sample_images_shows_them(tmp_path: Path) -> None:
    study, text = find_study("figure_samples")
    folder = StudyFolder.create(tmp_path / study.id, study, text)
    Image.new("L", (8, 8), 200).save(folder.path / "samples-mnist.png")
    (folder.path / "samples-<i>.png").write_bytes(b"not a picture")
    page = write_report(folder.path).read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 1
    assert 'alt="Twelve training images of each class of mnist."' in page
    assert "samples-&lt;i&gt;.png cannot be read; run the study again." in page
    assert (folder.path / "report" / "figures" / "figure_samples-mnist.png").exists()
