"""The page of the reproduction says what the collected runs say, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from continual_crust.errors import InputError
from continual_crust.report.cells import ACCURACY
from continual_crust.report.evidence import Cell, Evidence, full_name_of, name_of
from continual_crust.report.generated_tables import PLACE, available_tables, evidence_of, with_tables, write_tables
from continual_crust.report.moved import STUDIES as STUDIES_OF_MOVED
from continual_crust.report.paper_comparison import TABLES
from continual_crust.report.reproduction_figures import accuracy_against_noise, ours_against_the_papers
from continual_crust.studies.collected import Collected, KeptRun
from continual_crust.studies.config import RunConfig
from continual_crust.studies.paper import paper_tables
from continual_crust.studies.result import RunResult
from continual_crust.studies.study import METHOD_REVISIONS, Study
from continual_crust.studies.study_file import parse_study, shipped_studies
from field_images import command
from test_report_study_data import result_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reproduction.md"


@pytest.fixture(scope="module")
def studies() -> dict[str, Study]:
    return shipped_studies()


def collected(*runs: tuple[RunConfig, float]) -> Collected:
    rows = [KeptRun.of(config, result_of(config, accuracy)) for config, accuracy in runs]
    return Collected({row.run: row for row in rows})


def chosen(study: Study, method: str, noise: str, dataset: str = "mnist", rule: str = "centrality") -> list[RunConfig]:
    found = [
        config
        for config in study.runs()
        if (config.method, str(config.noise), config.dataset) == (method, noise, dataset)
        and config.selector.rule == rule
    ]
    assert found
    return found


def with_accuracy(configs: Iterable[RunConfig], accuracy: float) -> list[tuple[RunConfig, float]]:
    return [(config, accuracy) for config in configs]


def plain(text: str) -> str:
    """Without the spaces that hold numbers together."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


def table(text: str) -> list[list[str]]:
    """The cells of a table, or of the first of them."""
    lines = plain(text).split("<details>")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def row_of(text: str, name: str) -> list[str]:
    """What follows a name in a table."""
    (row,) = [row for row in table(text) if row[0] == name]
    return row[1:]


def test_the_page_is_what_the_committed_runs_give() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_tables(text, ROOT / "results" / "reproduction") == text


def test_the_page_has_every_table_of_the_paper_that_can_be_made() -> None:
    names = [place["name"] for place in PLACE.finditer(PAGE.read_text(encoding="utf-8"))]
    assert set(TABLES) == set(paper_tables()) - {"pathmnist_label_256"}
    assert [name for name in names if name in TABLES] == list(TABLES)
    assert set(names) >= {"targets", "elsewhere", "study ablation_mnist", "beyond mnist", "beyond cifar10"}
    assert "pathmnist_label_256" not in available_tables(Collected())


def test_committed_runs_are_few_kilobytes_each() -> None:
    for path in (ROOT / "results" / "reproduction").glob("*.json"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert len(line) < 4_000, path.name


def test_what_is_missing_is_shown_as_missing() -> None:
    for name, make in available_tables(Collected()).items():
        text = make()
        assert name == "what is worse" or "not run yet" in text or "No run" in text, name
        assert not re.search(r"\d \(\d", text), name  # a number of ours has that of its seeds behind it


def test_verdicts(studies: dict[str, Study]) -> None:
    main = studies["main_label_0.5"]
    tables = available_tables(
        collected(
            *with_accuracy(chosen(main, "replay", "label:0.5"), 0.17),
            *with_accuracy(chosen(main, "der", "label:0.5"), 0.20),
            *with_accuracy(chosen(main, "icarl", "label:0.5")[:3], 0.75),
            *with_accuracy(chosen(main, "crust", "label:0.5"), 0.86),
            *with_accuracy(chosen(main, "crust", "label:0.5", rule="facility_location"), 0.15),
            *with_accuracy(chosen(main, "joint", "label:0.5"), 0.98),
        )
    )
    text = tables["main_label_0.5"]()
    first = {row[0]: row[1] for row in table(text)}
    assert first["Replay"] == "0.170 ± 0.000 (5)<br>paper 0.16 ± 0.02<br>within"
    assert first["DER, alpha 3.0"] == "0.200 ± 0.000 (5)<br>paper 0.44 ± 0.02<br>**worse**"
    assert first["iCaRL"] == "0.750 ± 0.000 (3)<br>paper 0.30 ± 0.15<br>**better**"
    assert first["CRUST as released"] == "0.860 ± 0.000 (5)<br>paper 0.86 ± 0.08<br>within"
    assert first["CRUST as written"] == "0.150 ± 0.000 (5)<br>paper 0.86 ± 0.08<br>**worse**"
    not_run = next(line for line in text.splitlines() if line.startswith("Not run yet: "))
    for name in ("CosineCRUST", "Sift", "Oracle"):
        assert name not in first
        assert name in not_run
    assert len(table(text)[0]) == 2  # of four data sets one was run
    assert text.count("Nothing was run yet for: FashionMNIST; CIFAR10; MSTAR.") == 1
    assert row_of(tables["mnist_label_300"](), "Replay") == [first["Replay"]]
    # Forgetting is 0.1 in all of them, which is less than 0.88; and joint training cannot forget.
    forgetting = plain(text).split("<details>")[1]
    assert "| Replay | 0.100 ± 0.000 (5)<br>paper 0.88 ± 0.03<br>**better** |" in forgetting
    assert "| Joint | – |" in forgetting
    assert table(tables["what is worse"]())[2:] == [
        ["`main_label_0.5`", "DER, alpha 3.0", "accuracy", "MNIST: 0.200 ± 0.000 (5), paper 0.44 ± 0.02"],
        ["`main_label_0.5`", "CRUST as released", "forgetting", "MNIST: 0.100 ± 0.000 (5), paper 0.03 ± 0.03"],
    ]
    # Accuracies: replay, crust and joint within, iCaRL better, DER worse. Forgetting: three better, crust worse.
    assert row_of(tables["verdicts"](), "`main_label_0.5`") == ["68", "3", "4", "2", "59"]


def test_der_counts_with_its_own_alpha_where_labels_are_right(studies: dict[str, Study]) -> None:
    damaged, flipped = studies["mnist_instance_128"], studies["mnist_label_300"]
    runs = chosen(damaged, "der", "salt_and_pepper:0.4")
    found = collected(
        *with_accuracy([run for run in runs if run.options["alpha"] == 0.1], 0.96),
        *with_accuracy([run for run in runs if run.options["alpha"] == 3.0], 0.66),
        *with_accuracy(chosen(flipped, "der", "label:0.5"), 0.44),
    )
    tables = available_tables(found)
    shown = tables["mnist_instance_128"]()
    assert row_of(shown, "DER") == ["0.960 ± 0.000 (5)<br>paper 0.96 ± 0.00<br>within"]
    assert row_of(shown, "DER, alpha 3.0") == ["0.660 ± 0.000 (5)<br>paper 0.96 ± 0.00<br>**worse**"]
    assert row_of(tables["mnist_label_300"](), "DER, alpha 3.0")[0].startswith("0.440")
    counted = row_of(tables["verdicts"](), "`mnist_instance_128`")
    assert (counted[1], counted[3]) == ("1", "1")  # accuracy within; forgetting, 0.1 in all of them, worse


def test_only_the_configuration_of_the_study_counts(studies: dict[str, Study], monkeypatch: pytest.MonkeyPatch) -> None:
    runs = chosen(studies["main_label_0.5"], "replay", "label:0.5")
    other = [replace(run, training=replace(run.training, learning_rate=0.5)) for run in runs]
    found = collected(*with_accuracy(runs[:4], 0.9), *with_accuracy(other, 0.1))
    assert row_of(available_tables(found)["main_label_0.5"](), "Replay")[0].startswith("0.900 ± 0.000 (4)")
    monkeypatch.setitem(METHOD_REVISIONS, "replay", 1)
    later = available_tables(found)
    assert later["main_label_0.5"]() == "All of this table is not run yet.\n"
    assert "9 runs have been collected" in later["what there is"]()
    assert "9 of them are of an earlier state" in later["what there is"]()


def test_precisions_are_told_and_never_mixed(studies: dict[str, Study]) -> None:
    runs = list(chosen(studies["main_label_0.5"], "crust", "label:0.5", "cifar10"))
    fast = [replace(run, training=replace(run.training, precision="bfloat16")) for run in runs]

    def shown(*pairs: tuple[RunConfig, float]) -> str:
        cell = Evidence([], collected(*pairs).rows.values()).of(runs)
        return plain(cell.words(ACCURACY))

    assert shown(*with_accuracy(fast[:3], 0.3), *with_accuracy(runs[3:], 0.5)) == "0.300 ± 0.000 (3, bfloat16)"
    assert shown(*with_accuracy(fast[:2], 0.3), *with_accuracy(runs[3:], 0.5)) == "0.500 ± 0.000 (2)"
    assert shown((runs[0], 0.5)) == "0.500 (1)"
    assert shown() == "not run yet"


def test_sift_is_shown_from_seeds_that_did_not_tune_it(studies: dict[str, Study]) -> None:
    runs = chosen(studies["surpass_label"], "sift", "label:0.5")
    assert [run.seed for run in runs] == [2, 3, 4, 5, 6]
    tuned = [replace(runs[0], seed=seed) for seed in (0, 1)]
    crust = [
        config for name in ("surpass_label", "main_label_0.5") for config in chosen(studies[name], "crust", "label:0.5")
    ]
    tables = available_tables(
        collected(*with_accuracy(runs, 0.97), *with_accuracy(tuned, 0.1), *with_accuracy(crust, 0.86))
    )
    main, targets = tables["main_label_0.5"](), tables["targets"]()
    assert row_of(main, "Sift")[0] == "0.970 ± 0.000 (5)"
    assert row_of(main, "CRUST as released")[0].startswith("0.860 ± 0.000 (5)")
    target, sift, reached, best, own_oracle, oracle, paper = row_of(targets, "MNIST, k = 300: accuracy")
    assert (target, sift, reached) == ("≥ 0.96", "0.970 ± 0.000 (5)", "yes")
    assert (best, paper) == ("0.860 ± 0.000 (5), CRUST as released", "0.90 ± 0.02, CosineCRUST")
    assert own_oracle == oracle == "not run yet"
    assert row_of(targets, "MNIST, k = 300: purity of the memory")[2] == "**no**"
    assert row_of(targets, "MNIST, k = 300: forgetting")[:3] == ["≤ 0.03", "0.100 ± 0.000 (5)", "**no**"]
    assert row_of(targets, "CIFAR10, k = 300: accuracy")[1:3] == ["not run yet", ""]


def test_crust_is_shown_from_the_papers_seeds_where_there_are_no_others(studies: dict[str, Study]) -> None:
    first = chosen(studies["main_label_0.5"], "crust", "label:0.5")[:2]
    same = chosen(studies["surpass_label"], "cosine_crust", "label:0.5")[3:]
    assert [run.seed for run in (*first, *same)] == [0, 1, 5, 6]

    def best(*pairs: tuple[RunConfig, float]) -> str:
        return row_of(available_tables(collected(*pairs))["targets"](), "MNIST, k = 300: accuracy")[3]

    assert best(*with_accuracy(first, 0.9)) == "0.900 ± 0.000 (2), CRUST as released, other seeds"
    assert best(*with_accuracy(first, 0.9), *with_accuracy(same, 0.5)) == "0.500 ± 0.000 (2), CosineCRUST"
    assert best() == "–"


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.955, "yes"), (0.945, "**no**")])
def test_sift_may_lose_little_on_clean_labels(studies: dict[str, Study], accuracy: float, verdict: str) -> None:
    study = studies["surpass_label"]
    found = collected(
        *with_accuracy(chosen(study, "sift", "label:0.0"), accuracy),
        *with_accuracy(chosen(study, "crust", "label:0.0"), 0.90),
        *with_accuracy(chosen(study, "cosine_crust", "label:0.0")[:2], 0.96),
    )
    text = available_tables(found)["elsewhere"]()
    row = row_of(text, "MNIST, k = 300: no noise")
    assert row[1] == "0.960 ± 0.000 (2), CosineCRUST"
    assert row[3] == verdict
    assert "MSTAR, k = 30: 80 % salt-and-pepper images" in text.split("Not run yet: ")[1]


def test_beyond_and_ablation(studies: dict[str, Study]) -> None:
    sift = [run for run in studies["ablation_mnist"].runs() if run.options["crowding"] is False]
    tables = available_tables(
        collected(
            *with_accuracy(chosen(studies["beyond_asymmetric"], "replay", "asymmetric:0.4"), 0.4),
            *with_accuracy(chosen(studies["beyond_heavy"], "replay", "label:0.8"), 0.2),
            *with_accuracy(chosen(studies["beyond_two_classes"], "replay", "label:0.5"), 0.3),
            *with_accuracy(sift, 0.5),
        )
    )
    cells = row_of(tables["beyond mnist"](), "Replay")
    assert cells[0] == "0.400 ± 0.000 (3)<br>purity 0.75"
    assert [cell[:5] for cell in cells] == ["0.400", "0.200", "0.300"]
    assert table(tables["beyond mnist"]())[0][1:] == ["40 % to the next class", "80 %", "two classes at a time, 50 %"]
    ablation = tables["study ablation_mnist"]()
    assert row_of(ablation, "Sift, without crowding")[0] == "0.500 ± 0.000 (5)"
    assert "Not run yet: Sift; " in ablation


def test_every_run_of_the_studies_of_the_page_has_a_cell(
    studies: dict[str, Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that no table shows would be device time for nothing, and a cell without a run would stay empty."""
    names = [place["name"] for place in PLACE.finditer(PAGE.read_text(encoding="utf-8"))]
    of_the_page = [
        study
        for study in studies.values()
        if study.id in names
        or f"study {study.id}" in names
        or study.id.startswith(("surpass", "beyond"))
        or ("moved" in names and study.id in STUDIES_OF_MOVED)
    ]
    runs = [run for study in of_the_page for run in study.runs() if run.dataset != "pathmnist"]
    everything = collected(*with_accuracy(runs, 0.5))
    shown: set[int] = set()

    def recording(results: tuple[RunResult, ...], precision: str) -> Cell:
        shown.update(map(id, results))
        return Cell(results, precision)

    monkeypatch.setattr("continual_crust.report.evidence.Cell", recording)
    tables = available_tables(everything)
    for name in names:
        assert "not run yet" not in tables[name]().replace("| not run yet |", "", name == "verdicts"), name
    assert [row.run for row in everything.rows.values() if id(row.result) not in shown] == []


def test_names_tell_what_is_changed(studies: dict[str, Study]) -> None:
    names = [name_of(run) for run in studies["ablation_mnist"].runs() if run.seed == 2]
    assert len(set(names)) == len(names)
    assert {"Sift", "Sift, without margin", "Sift, memory by herding"} <= set(names)
    tuned = [full_name_of(run, {}) for run in studies["tune_mnist"].runs() if run.method == "crust" and run.noise.level]
    assert tuned[1] == "CRUST as released, learning_rate 0.0001"
    assert tuned[2] == "CRUST as released"
    first = next(iter(studies["sift_digits"].runs()))
    assert full_name_of(first, {}) == "Replay, phase1_epochs 40, phase2_epochs 20"
    assert full_name_of(first, studies["sift_digits"].overrides) == "Replay"
    changed = replace(first, training=replace(first.training, phase1_epochs=1))
    assert full_name_of(changed, studies["sift_digits"].overrides) == "Replay, phase1_epochs 1"


TWO_SIFTS = """\
id: two_sifts
title: with and without mixed images
datasets: [mnist, cifar10]
methods:
  - sift
  - {method: sift, options: {mixed: false}}
seeds: 1
"""


def test_options_for_a_data_set_are_its_default_and_can_be_changed() -> None:
    runs = list(parse_study(TWO_SIFTS, "two_sifts").runs())
    assert [(run.options["mixed"], run.options["mirror"]) for run in runs] == [
        (False, False),  # of both, since MNIST's are not mixed anyway
        (True, True),
        (False, True),
    ]
    assert [name_of(run) for run in runs] == ["Sift", "Sift", "Sift, without mixed"]


def test_what_the_paper_has_otherwise_in_a_whole_study_is_told_beside_its_table(tmp_path: Path) -> None:
    study = tmp_path / "moved.yaml"
    text = f"<!-- table: study {study} -->\n<!-- end of table -->\n"
    told = "All with shift 0.125, mirror, where a method takes it."
    study.write_text(TWO_SIFTS.replace("seeds", "overrides: {batch_size: 16}\nseeds"))
    assert told not in with_tables(text, tmp_path / "nothing")
    study.write_text(TWO_SIFTS.replace("seeds", "overrides: {shift: 0.125, mirror: true}\nseeds"))
    filled = with_tables(text, tmp_path / "nothing")
    assert told in filled
    assert "Sift, shift" not in filled  # which moves its images itself, and takes none of it
    study.write_text(TWO_SIFTS.replace("seeds", "overrides: {classes_per_experience: 2}\nseeds"))
    assert "All with classes_per_experience 2" in with_tables(text, tmp_path / "nothing")


def test_two_meanings_of_one_cell_are_refused(studies: dict[str, Study]) -> None:
    with pytest.raises(InputError, match="tune_mnist means another run by mnist-naive"):
        Evidence([studies["tune_mnist"]], [])


def test_only_the_marked_places_are_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "mine\n<!-- table: verdicts -->\nold\n<!-- end of table -->\n{} \\1 mine\n"
    page.write_text(text, encoding="utf-8")
    assert write_tables(page, tmp_path / "nothing")
    new = page.read_text(encoding="utf-8")
    assert new.startswith("mine\n<!-- table: verdicts -->\n\n| table |")
    assert new.endswith("|\n\n<!-- end of table -->\n{} \\1 mine\n")
    assert "old" not in new
    assert not write_tables(page, tmp_path / "nothing")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<!-- table: verdicts -->\n", "has no '<!-- end of table -->'"),
        ("<!-- table: verdicts -->\n<!-- table: targets -->\n<!-- end of table -->", "has no '<!-- end of table -->'"),
        ("<!-- table: verdict -->\n<!-- end of table -->", "did you mean 'verdicts'"),
    ],
)
def test_places_that_cannot_be_filled_are_told(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        with_tables(text, tmp_path)
    with pytest.raises(InputError, match="cannot read the page"):
        write_tables(tmp_path / "nowhere.md", tmp_path)


def test_figures_show_what_the_tables_say(studies: dict[str, Study]) -> None:
    heavy = studies["beyond_heavy"]
    found = collected(
        *with_accuracy(chosen(studies["surpass_label"], "sift", "label:0.5"), 0.9),
        *with_accuracy(chosen(heavy, "crust", "label:0.8"), 0.3),
        *with_accuracy(chosen(studies["main_label_0.5"], "replay", "label:0.5"), 0.2),
    )
    evidence = evidence_of(found)
    lines = {line.get_label(): line for line in accuracy_against_noise(evidence).axes[0].get_lines()}
    drawn = {name: [pair for pair in line.get_xydata() if pair[1] == pair[1]] for name, line in lines.items()}
    assert [tuple(pair) for pair in drawn["Sift"]] == [(0.5, pytest.approx(0.9))]
    assert [tuple(pair) for pair in drawn["CRUST"]] == [(0.8, pytest.approx(0.3))]
    assert drawn["CosineCRUST"] == []
    # Replay alone has a number of the paper's beside it, 0.16 on MNIST; Sift has none.
    points = [line.get_xydata() for line in ours_against_the_papers(evidence).axes[0].get_lines()]
    assert [pair.tolist() for pair in points if len(pair) == 1] == [[[0.16, pytest.approx(0.2)]]]


def test_moved_images_stand_beside_images_as_they_came_and_the_paper(studies: dict[str, Study]) -> None:
    runs = [config for config in studies["readings_large"].runs() if str(config.noise) == "label:0.5"]
    crust = [config for config in runs if (config.dataset, config.method) == ("mstar", "crust")]
    joint = [config for config in runs if (config.dataset, config.method) == ("fashionmnist", "joint")]
    found = collected(
        *((config, 0.7 if config.training.shift else 0.2) for config in crust),
        *((config, 0.8) for config in joint if config.training.shift and config.training.learning_rate == 0.03),
        *((config, 0.5) for config in joint if not config.training.shift),
    )
    rows = table(available_tables(found)["moved"]())[2:]
    assert [[row[0], row[1].split(",")[0]] for row in rows] == [
        ["Joint, learning_rate 0.03", "FashionMNIST"],
        ["CRUST as released", "MSTAR"],
    ]
    assert [row[2].split(", ")[0] for row in rows] == ["0.500", "0.200"]
    assert [row[3].split(", ")[0] for row in rows] == ["0.800", "0.700"]
    assert [row[4].split(", ")[0] for row in rows] == ["0.87 ± 0.01", "0.71 ± 0.02"]
    assert [row[5].split(", ")[0] for row in rows] == ["worse", "within"]
    lines = [line.get_xydata().tolist() for line in ours_against_the_papers(evidence_of(found)).axes[0].get_lines()]
    assert [[0.71, pytest.approx(0.2)], [0.71, pytest.approx(0.7)]] in lines


def test_methods_without_memory_have_no_purity(studies: dict[str, Study]) -> None:
    runs = chosen(studies["main_label_0.5"], "cumulative", "label:0.5") + chosen(
        studies["main_label_0.5"], "replay", "label:0.5"
    )
    text = available_tables(collected(*with_accuracy(runs, 0.5)))["main_label_0.5"]()
    assert "| Cumulative, restart |" in text
    purities = text[text.index("| Purity of the memory |") :]
    assert "| Replay |" in purities
    assert "Cumulative" not in purities


def test_what_was_not_moved_is_no_row_of_moved_images(studies: dict[str, Study]) -> None:
    runs = [config for config in studies["readings_large"].runs() if not config.training.shift]
    assert table(available_tables(collected(*with_accuracy(runs, 0.5)))["moved"]()) == []


def test_figures_are_drawn_where_asked(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- table: what there is -->\n<!-- end of table -->\n", encoding="utf-8")
    tables = ("study", "tables", page, "--from", ROOT / "results" / "reproduction", "--figures")
    assert command(*tables, tmp_path / "none") != 0
    assert "runs have been" not in page.read_text(encoding="utf-8")
    assert command(*tables, tmp_path) == 0
    assert {path.name for path in tmp_path.glob("*.png")} == {"reproduction_noise.png", "reproduction_paper.png"}
