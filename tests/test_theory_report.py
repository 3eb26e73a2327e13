"""The theorems on a learner, on paper and at the terminal; the sweep; the documentation's examples."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console

import theory_descent
from continual_crust.data import Dataset, Noise, NoiseKind, Stream
from continual_crust.errors import InputError
from continual_crust.report import theory_sweep as sweeping
from continual_crust.report.theory_figure import theory_figure
from continual_crust.strategies import Training
from continual_crust.studies.config import RunConfig
from continual_crust.studies.run import FinishedRun, execute
from continual_crust.theory import TheoryReport, coverage, tables, theory_report, watched_descent
from continual_crust.theory.learner import median
from continual_crust.theory.printing import measured_table, print_report, print_sweep, print_wide
from continual_crust.theory.tables import number
from continual_crust.writing import finite

QUICK = Training(phase1_epochs=4, phase2_epochs=1, memory_per_class=8)
DOCUMENT = Path(__file__).parents[1] / "docs" / "theory.md"


def learned(dataset: Dataset, noise: str, method: str = "crust") -> FinishedRun:
    config = RunConfig(dataset.name, method, "simple_cnn", Noise.parse(noise), 0, QUICK)
    return execute(config, dataset, torch.device("cpu"))


@pytest.fixture(scope="module")
def flipped(few_digits: Dataset) -> TheoryReport:
    return theory_report(learned(few_digits, "label:0.3"))


@pytest.fixture(scope="module")
def perturbed_run(few_digits: Dataset) -> FinishedRun:
    return learned(few_digits, "salt_and_pepper:0.5")


@pytest.fixture(scope="module")
def perturbed(perturbed_run: FinishedRun) -> TheoryReport:
    return theory_report(perturbed_run)


def printed(report: TheoryReport, width: int = 200) -> str:
    text = io.StringIO()
    print_report(report, Console(file=text, width=width))
    return text.getvalue()


def test_clean_images_are_those_before_the_noise(few_digits: Dataset) -> None:
    stream = Stream(few_digits, Noise(NoiseKind.SALT_AND_PEPPER, 0.5), seed=1)
    given = stream.joined().samples[torch.tensor([7, 0, 90, 41])]
    clean = stream.clean_images_of(given.ids)
    changed = (clean != given.images).flatten(1).any(dim=1)
    assert torch.equal(changed, stream.truth.perturbed[given.ids])
    for image, label in zip(clean, stream.truth.labels[given.ids], strict=True):
        same = (few_digits.train_images == image).flatten(1).all(dim=1)
        assert label in few_digits.train_labels[same]


def test_flipped_labels_are_measured_class_by_class(flipped: TheoryReport) -> None:
    assert {part.name for part in flipped.classes} == {"0", "1", "2", "3"}
    assert {part.theorem.name for part in flipped.classes} == {"Theorem 1: flipped labels"}
    for part in flipped.classes:
        found = part.measured
        assert found.k == 8
        assert not found.perturbed
        assert 0 < found.alpha < found.beta
        assert found.epsilon > 0
        assert (found.e_j1, found.e_j2, found.e_min, found.e_max) == (0, 0, 0, 0)
    assert sum(part.measured.n for part in flipped.classes) == 160
    noisy = sum(part.measured.noise_in_data * part.measured.n for part in flipped.classes)
    assert noisy == pytest.approx(0.3 * 160)


def test_perturbed_images_are_compared_with_clean_ones(perturbed: TheoryReport) -> None:
    assert {part.theorem.name for part in perturbed.classes} == {"Theorem 2: perturbed images"}
    for part in perturbed.classes:
        found = part.measured
        assert found.perturbed
        if found.noise_in_coreset:
            assert found.e_j1 > 0
            assert found.additivity_gap is not None
            assert found.additivity_gap > 0.01
        else:
            assert found.e_j1 == 0


def test_a_report_is_plain_json(flipped: TheoryReport, perturbed: TheoryReport) -> None:
    for report in (flipped, perturbed):
        text = json.dumps(report.as_dict(), allow_nan=False)
        plain = json.loads(text)
        assert plain["classes"][0]["theorem"]["conditions"][0]["status"] in ("holds", "fails", "ill-posed")
    assert finite({"a": [float("nan"), float("inf"), 1.0]}) == {"a": [None, None, 1.0]}


def test_a_report_can_be_printed(flipped: TheoryReport, perturbed: TheoryReport) -> None:
    text = printed(flipped)
    for expected in ("Theorem 1", "ρ < δ/8", "both sides", "corrected", "What to do", "raise k"):
        assert expected in text
    text = printed(perturbed)
    for expected in ("Theorem 2", "log δ is negative", "E_J2", "ill-posed", "nothing to assume"):
        assert expected in text
    assert "nan" not in text


def test_a_narrow_terminal_loses_no_digit(perturbed: TheoryReport) -> None:
    text = io.StringIO()
    table = measured_table(perturbed)
    print_wide(table, Console(file=text, width=60))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    cells = {cell.strip() for line in lines for cell in re.split("[│┃]", line)}
    assert cells >= {cell for row in (table.headings, *table.rows) for cell in row}


def test_a_narrow_terminal_cuts_no_formula(perturbed: TheoryReport) -> None:
    assert "…" not in printed(perturbed, width=60)


def test_some_classes_and_some_samples(perturbed_run: FinishedRun, perturbed: TheoryReport) -> None:
    calls = []
    report = theory_report(perturbed_run, classes=["2"], most_samples=20, on_progress=lambda *call: calls.append(call))
    (part,) = report.classes
    assert (part.name, part.measured.n, part.measured.k) == ("2", 20, 8)
    assert calls == [("class 2", 0, 1)]
    whole = next(other for other in perturbed.classes if other.name == "2")
    assert part.measured.sigma_min == pytest.approx(whole.measured.sigma_min)


def test_other_views(perturbed_run: FinishedRun) -> None:
    every = theory_report(perturbed_run, view="all", classes=["2"], most_samples=10).classes[0].measured
    assert (every.k, every.n) == (8 * 4, 10 * 4)
    share = theory_report(perturbed_run, view="probability", classes=["2"], most_samples=10).classes[0].measured
    assert share.residual <= 2 * 10**0.5


def test_descent_from_a_learners_weights(perturbed_run: FinishedRun, perturbed: TheoryReport) -> None:
    before = {name: value.clone() for name, value in perturbed_run.strategy.network.model.state_dict().items()}
    descent = watched_descent(perturbed_run, "1", 3)
    found = next(part.measured for part in perturbed.classes if part.name == "1")
    assert (descent.alpha, descent.beta) == pytest.approx((found.alpha, found.beta))
    assert descent.steps[0].residual == pytest.approx(found.residual)
    assert descent.steps[0].gap == pytest.approx(found.linearization, rel=1e-6)
    assert descent.steps[-1].after < descent.steps[0].residual
    assert descent.violations == 0
    after = perturbed_run.strategy.network.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_clean_or_covering(few_digits: Dataset) -> None:
    rows = coverage(learned(few_digits, "label:0.3"), sizes=(5, 40, 1000))
    assert len(rows) == 9
    by_key = {(row.rule, row.k): row for row in rows}
    for rule in ("centrality", "facility_location", "random"):
        # Everything covers everything, and holds all the noise there is.
        assert by_key[rule, 1000].relative_epsilon == 0
        assert by_key[rule, 1000].noise_in_coreset == pytest.approx(0.3, abs=0.05)
        assert by_key[rule, 40].relative_epsilon < by_key[rule, 5].relative_epsilon
    assert by_key["centrality", 5].noise_in_coreset < by_key["facility_location", 5].noise_in_coreset
    assert by_key["centrality", 5].relative_epsilon > by_key["facility_location", 5].relative_epsilon


def test_what_has_no_coreset_is_told(few_digits: Dataset, perturbed_run: FinishedRun) -> None:
    with pytest.raises(InputError, match="run of 'naive' kept no memory"):
        theory_report(learned(few_digits, "none", "naive"))
    with pytest.raises(InputError, match="no memory of class 'seven'"):
        theory_report(perturbed_run, classes=["seven"])


def test_the_sweep_writes_a_table_and_a_figure(
    few_digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "load_dataset", lambda name: few_digits)
    monkeypatch.setattr(sweeping, "DESCENT_STEPS", 1)
    monkeypatch.setattr(sweeping, "coverage", lambda finished: [])
    calls = []
    path = sweeping.sweep(
        tmp_path / "new",
        lambda *call: calls.append(call),
        seeds=1,
        label_levels=(0.0, 0.4),
        perturbed_levels=(0.5,),
        training=QUICK,
        workers=1,
    )
    assert [call[0] for call in calls] == ["none, seed 0", "label:0.4, seed 0", "salt_and_pepper:0.5, seed 0", "done"]
    names = sorted(file.name for file in path.parent.iterdir())
    assert names == ["theory_digits.json", "theory_digits.md", "theory_digits.png"]
    rows = json.loads(path.read_text())["rows"]
    assert [(row["noise"], row["level"]) for row in rows] == [("none", 0.0), ("label", 0.4), ("salt_and_pepper", 0.5)]
    for row in rows:
        assert row["relative_epsilon"] > 0
        assert row["iterations_corrected"] >= 0
        assert all(sum(counts["as_written"].values()) == 4 for counts in row["conditions"].values())
        assert row["descent"]["steps"] == 4
        assert row["descent"]["violations"] == 0
        assert row["coverage"] == []
    assert rows[0]["iterations_stated"] is None
    assert rows[2]["e_j1"] > 0
    text = io.StringIO()
    print_sweep(path, Console(file=text, width=250))
    for expected in ("none", "label:0.4", "salt_and_pepper:0.5", "steps, corrected"):
        assert expected in text.getvalue()
        assert expected in path.with_suffix(".md").read_text(encoding="utf-8")


def test_both_kinds_of_noise_share_their_axes() -> None:
    keys = ("relative_epsilon", "allowed_relative_epsilon", "iterations_corrected", "iterations_stated")
    rows = [
        {"noise": noise, "level": level, **dict.fromkeys(keys, 0.5 + level)}
        for noise, level in (("none", 0.0), ("label", 0.2), ("label", 0.5), ("salt_and_pepper", 0.8))
    ]
    rows[1]["iterations_stated"] = None
    panels = theory_figure(rows).axes
    for position, axes in enumerate(panels):
        flipped, perturbed = axes.get_lines()[:2]
        assert list(flipped.get_xdata()) == [0.0, 0.2, 0.5]
        # What Theorem 2 allows without noise is nothing.
        assert list(perturbed.get_xdata()) == ([0.8] if position == 1 else [0.0, 0.8])
    assert len(panels) == 3


def test_numbers_for_people() -> None:
    assert [number(value) for value in (None, 0.00012345, 1500, 2_000_000, 12.5)] == [
        "–",
        "0.000123",
        "1,500",
        "2e+06",
        "12.5",
    ]
    assert median([None, None]) is None
    assert median([1.0, 2.0]) == 1.5


def test_tables_of_a_sweep() -> None:
    kept = {"as_written": {"holds": 7, "fails": 3}, "to_go_by": {"holds": 9, "fails": 1}}
    unposed = {"as_written": {"ill-posed": 10}, "to_go_by": {"fails": 10}}
    part = {"rule": "random", "k": 5, "noise_in_coreset": 0.25, "relative_epsilon": 0.5}
    counts = {"steps": 4, "conditions_hold": 3, "bound_kept": 4, "violations": 0}
    measured = dict.fromkeys([*tables._MEASURED.values(), *tables._BEHIND_IT.values()], 0.5)
    rows = [
        {"noise": "none", "level": 0.0, "seed": 0, "conditions": {"a": kept}, "coverage": [part], "descent": counts},
        {"noise": "none", "level": 0.0, "seed": 1, "conditions": {"a": kept}, "coverage": None, "descent": None},
        {"noise": "label", "level": 0.2, "seed": 0, "conditions": {"b": unposed}, "coverage": None, "descent": None},
    ]
    rows = [row | measured for row in rows]
    rows[0]["epsilon"], rows[1]["epsilon"], rows[2]["iterations_stated"] = 1.0, 4.0, None
    main, behind, conditions, covered, descents = tables.sweep_tables(rows)
    assert [row[0] for row in main.rows] == ["none", "label:0.2"]
    assert main.rows[1][main.headings.index("steps, as stated")] == "–"
    assert behind.rows[0][behind.headings.index("ε")] == "2.5"
    assert conditions.headings == ("noise", "a", "b")
    assert conditions.rows == (("none", "14 / 18", ""), ("label:0.2", "", "– / 0"))
    assert (covered.headings, covered.rows) == (("noise", "rule", "k = 5"), (("none", "random", "25%, 0.50"),))
    assert descents.rows == (("none", "4", "3", "4", "0"),)
    assert "| none | 14 / 18 |  |\n" in sweeping.markdown([conditions])


def test_the_documentation_shows_the_measured_tables() -> None:
    results, text = DOCUMENT.parents[1] / "results", DOCUMENT.read_text(encoding="utf-8")
    rows = json.loads((results / "theory_digits.json").read_text(encoding="utf-8"))["rows"]
    found = tables.sweep_tables(rows)
    assert (results / "theory_digits.md").read_text(encoding="utf-8") == sweeping.markdown(found)
    for table in found:
        assert sweeping.markdown([table]).split("\n\n")[1] in text, table.title
    posed = dict.fromkeys((row["level"] for row in rows if row["noise"] == "label"), 0)
    for row in rows:
        if row["noise"] == "label":
            posed[row["level"]] += 10 - row["conditions"]["Jacobian error"]["as_written"].get("ill-posed", 0)
    *most, last = map(str, posed.values())
    assert f"as stated these are {', '.join(most)} and {last} of the 30" in " ".join(text.split())


def test_the_lemma_holds_for_real_gradient_descent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["theory_descent.py", "--steps", "15"])
    theory_descent.main()
    found = json.loads((tmp_path / "theory_descent.json").read_text())
    assert (found["steps"], found["conditions_hold"], found["violations"]) == (15, 15, 0)
    assert found["residual_after"] < found["bound_after"] < found["residual_before"]
    assert (tmp_path / "theory_descent.png").read_bytes().startswith(b"\x89PNG")


def test_the_examples_of_the_documentation_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(DOCUMENT), "exec"), {})
