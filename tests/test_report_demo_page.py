"""The demo page tells the truth, needs nothing but itself, and trusts no name."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

import pytest
import torch

from continual_crust.errors import InputError
from continual_crust.report.demo_page import DemoRun, headline, write_demo_page
from continual_crust.studies.result import RunResult
from html_page import Page


def run(method: str, purity: float | None, seed: int = 0, classes=("0", "1"), kept: int = 4, **changes) -> DemoRun:
    """A run whose memory of each class has the first of `kept` images wrong."""
    result = RunResult(
        method=method,
        dataset="digits",
        noise="label:0.4",
        seed=seed,
        accuracy_matrix=[[0.9, 0.0], [0.8, 0.7]],
        accuracy=0.75,
        forgetting=0.1,
        purity=purity,
        purity_per_class={} if purity is None else dict.fromkeys(classes, purity),
        purity_per_experience=[purity, purity],
        experiences=[[name] for name in classes],
        seconds=1.5,
        selection_seconds=0.5,
        device="cpu",
        versions={"torch": "2"},
    )
    if seed or purity is None:
        return DemoRun(replace(result, **changes))
    images = {name: torch.full((kept, 1, 8, 8), 60, dtype=torch.uint8) for name in classes}
    is_clean = {name: torch.arange(kept) > 0 for name in classes}
    return DemoRun(replace(result, **changes), images, is_clean)


@pytest.fixture
def page(tmp_path):
    runs = [run("replay", 0.58), run("crust", 0.92), run("replay", 0.62, seed=1), run("crust", 0.88, seed=1)]
    return write_demo_page(runs, tmp_path / "demo")


def test_the_headline_tells_the_means_over_seeds():
    runs = [run("replay", 0.5), run("crust", 0.9), run("replay", 0.6, seed=1), run("crust", 0.8, seed=1)]
    expected = "Same data, same network, same memory size: replay’s memory is 55 % clean, CRUST’s 85 %"
    assert headline(runs) == expected


def test_the_headline_names_every_method():
    told = headline([run("replay", 0.58), run("crust", 0.92), run("cosine_crust", 0.3)])
    assert told.endswith("replay’s memory is 58 % clean, CRUST’s 92 % and CosineCRUST’s 30 %")


def test_the_headline_admits_that_replay_wins():
    told = headline([run("replay", 0.62), run("crust", 0.58), run("cosine_crust", 0.5)])
    assert "replay’s memory is the cleanest here: 62 % clean against CRUST’s 58 % and CosineCRUST’s 50 %" in told


def test_the_headline_claims_nothing_for_a_difference_nobody_can_see():
    assert "no memory is cleaner than replay’s: 60 % clean against CRUST’s 60 %" in headline(
        [run("replay", 0.598), run("crust", 0.602)]
    )


def test_a_memory_with_one_wrong_image_is_not_called_all_clean(tmp_path):
    runs = [run("replay", 0.6), run("sift", 0.996)]
    assert headline(runs).endswith("replay’s memory is 60 % clean, Sift’s 99 %")
    words = re.sub(r"\s+", " ", Page(write_demo_page(runs, tmp_path).read_text(encoding="utf-8")).words)
    assert "Sift, seed 0: 99.6 % clean" in words
    assert headline([run("replay", 0.6), run("sift", 1.0)]).endswith("Sift’s 100 %")


def test_sift_is_explained_where_it_is_shown(tmp_path, page):
    shown = write_demo_page([run("replay", 0.6), run("sift", 0.9)], tmp_path)
    assert "Sift learns everything briefly" in Page(shown.read_text(encoding="utf-8")).words
    assert "Sift" not in Page(page.read_text(encoding="utf-8")).words


def test_the_headline_says_same_memory_size_only_if_so():
    assert "same memory size" not in headline([run("replay", 0.6), run("crust", 0.9, kept=3)])


def test_the_headline_does_without_replay_and_without_memories():
    assert headline([run("crust", 0.9)]).endswith(": CRUST’s memory is 90 % clean")
    assert headline([run("naive", None)]).endswith("none of these methods keeps a memory")


def test_the_page_shows_the_measured_numbers(page):
    words = re.sub(r"\s+", " ", Page(page.read_text(encoding="utf-8")).words)
    assert "replay’s memory is 60 % clean, CRUST’s 90 %" in words
    assert "Replay, seed 0: 58 % clean" in words
    assert "wrong label: 2 of 8 images" in words
    assert "90.0 % ± 2.8" in words
    assert "40 % of the training labels are wrong" in words
    assert "continual-crust demo --seeds 2 --level 0.4" in words


def test_the_page_needs_nothing_but_itself(page):
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"https?://|url\(|@import", text)
    parsed = Page(text)
    assert not parsed.all("script")
    assert not parsed.all("link")
    assert all(image["src"].startswith("data:image/png;base64,") for image in parsed.all("img"))


def test_the_figures_lie_beside_the_page_too(page):
    names = sorted(path.name for path in page.parent.iterdir())
    assert names == ["accuracy.png", "index.html", "memory_crust.png", "memory_replay.png", "purity.png"]
    embedded = {
        base64.b64decode(image["src"].partition(",")[2]) for image in Page(page.read_text(encoding="utf-8")).all("img")
    }
    assert embedded == {path.read_bytes() for path in page.parent.glob("*.png")}


def test_every_image_says_what_it_shows(page):
    alts = [image["alt"] for image in Page(page.read_text(encoding="utf-8")).all("img")]
    assert "Images that Replay keeps; 2 of 8 are framed in red. Clean share by class: 0 58 %, 1 58 %." in alts
    assert "Clean share of each method’s memory: Replay 60 %, CRUST 90 %." in alts
    assert all(alts)


def test_it_follows_the_colour_scheme_and_fits_a_phone(page):
    text = page.read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in Page(text).all("meta")


def test_no_name_becomes_markup_or_a_path(tmp_path):
    evil = '<script>alert("x")</script>'
    runs = [
        run("replay", 0.5, classes=(evil, '" onload="y')),
        run("../<b>", 0.5, classes=("a", "b")),
    ]
    runs = [DemoRun(replace(one.result, dataset=evil, device=evil), one.memory_images, one.is_clean) for one in runs]
    written = write_demo_page(runs, tmp_path / "demo")
    parsed = Page(written.read_text(encoding="utf-8"))
    assert not parsed.all("script")
    assert not parsed.all("b")
    assert all(set(image) == {"src", "alt"} for image in parsed.all("img"))
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_methods_without_memory_get_a_page_without_sheets(tmp_path):
    parsed = Page(write_demo_page([run("naive", None)], tmp_path).read_text(encoding="utf-8"))
    assert len(parsed.all("img")) == 1
    assert "–" in parsed.words


def test_corrupted_images_are_called_so(tmp_path):
    runs = [run("replay", 0.5, noise="uniform:0.3"), run("crust", 0.9, noise="uniform:0.3")]
    words = Page(write_demo_page(runs, tmp_path).read_text(encoding="utf-8")).words
    assert "corrupted image: 2 of 8 images" in words
    assert "wrong label" not in words


def test_nothing_is_written_where_there_is_nothing_to_compare(tmp_path):
    for runs in ([], [run("replay", 0.5), run("crust", 0.5, noise="none")]):
        with pytest.raises(InputError):
            write_demo_page(runs, tmp_path / "demo")
    assert not (tmp_path / "demo").exists()
