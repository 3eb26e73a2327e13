"""Runs land in the right cells, beside the right numbers of the paper, in every format."""

from __future__ import annotations

import csv
import io
import math

import pytest

from continual_crust.data.noise import NoiseKind
from continual_crust.report.cells import ACCURACY, FORGETTING, PURITY, Row, Summary, build_grid, safe_name
from continual_crust.report.significance import Ranking, rankings
from continual_crust.report.study_data import read_studies
from continual_crust.report.study_tables import as_csv, as_latex, as_markdown, study_tables
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.studies.defaults import defaults_for
from continual_crust.studies.paper import paper_table, paper_tables
from continual_crust.studies.study_file import find_study, parse_study
from test_report_study_data import config, result_of, write_run, write_study


@pytest.fixture
def study(tmp_path):
    return write_study(tmp_path / "study")


def grid_of(folder):
    return build_grid(read_studies(folder)[0])


def summary(mean, paper=None, std=0.01):
    return Summary(mean, std, seeds=5, finished=5, planned=5, interval=(mean, mean), paper=paper)


def test_seeds_share_a_cell(study):
    for seed, accuracy in enumerate((0.7, 0.8, 0.9)):
        write_run(study, config(seed=seed), result_of(config(seed=seed), accuracy))
    write_run(study, config(seed=3))
    grid = grid_of(study)
    assert grid.rows == (Row("crust"),)
    cell = grid.summary(grid.rows[0], grid.columns[0], ACCURACY)
    assert math.isclose(cell.mean, 0.8)
    assert math.isclose(cell.std, 0.1)
    assert (cell.seeds, cell.planned) == (3, 4)
    assert cell.paper is None


def test_configurations_of_one_method_are_never_mixed(study):
    for rule in ("facility_location", "centrality"):
        write_run(study, config(rule=rule), result_of(config(rule=rule)))
    write_run(study, config("replay"), result_of(config("replay")))
    assert [row.label for row in grid_of(study).rows] == [
        "Replay",
        "CRUST (facility_location)",
        "CRUST",
    ]


def test_a_row_says_what_is_not_as_the_method_has_it(study):
    """Even if it is the only one: who reads its name takes it for the method as it is."""
    changed = [
        config("replay", selector=SelectorConfig("herding")),
        config("replay", selector=SelectorConfig("crust", rule="facility_location"), noise="label:0.2"),
        config("naive", selector=SelectorConfig("herding")),
        config("der", options={"alpha": 0.3}),
        config("icarl", dataset="nobody's"),
    ]
    for run in changed:
        write_run(study, run, result_of(run))
    assert [row.label for row in grid_of(study).rows] == [
        "Naive",  # has no memory to choose
        "Replay (memory by herding)",
        "Replay (memory by crust, facility_location)",
        "DER (alpha 0.3)",
        "iCaRL",
    ]


def finished_study(folder, text):
    """A folder in which every run of a study is done."""
    study = write_study(folder, text)
    for run in parse_study(text, "study.yaml").runs():
        write_run(study, run, result_of(run))
    return study


TWO_RATES = """id: mine
title: Mine
datasets: [digits, folder]
methods: [replay, crust, {{method: replay, training: {{learning_rate: {rate}}}}}]
seeds: 1
"""


@pytest.mark.parametrize("rate", [0.01, 0.001])  # the second is the usual one of one data set
def test_a_method_is_one_row_whatever_rate_suits_each_data_set(tmp_path, rate):
    grid = grid_of(finished_study(tmp_path / "mine", TWO_RATES.format(rate=rate)))
    assert len({defaults_for(column.dataset, NoiseKind.NONE, "replay").training for column in grid.columns}) == 2
    assert [row.label for row in grid.rows] == ["Replay", f"Replay (learning_rate {rate})", "CRUST"]
    assert all(grid.results(row, column) for row in grid.rows for column in grid.columns)
    assert all(isinstance(found, Ranking) and not found.left_out for found in rankings(grid))


SIFT = """id: mine
title: Mine
datasets: [mnist, fashionmnist]
methods: [{method: sift, options: {mixed: true}}]
seeds: 1
"""


def test_what_is_usual_for_one_data_set_and_not_for_another_is_one_row(tmp_path):
    grid = grid_of(write_study(tmp_path / "mine", SIFT))
    usual = {defaults_for(column.dataset, NoiseKind.NONE, "sift").options.get("mixed") for column in grid.columns}
    assert len(usual) == 2
    assert [row.label for row in grid.rows] == ["Sift (mixed)"]


BESIDE_THE_PAPER = """id: mine
title: Mine
table: mnist_label_300
datasets: [mnist]
methods: [{{method: crust, training: {{learning_rate: 0.5, batch_size: 512}}}}]
noise: {{kind: label, levels: [0.5]}}
seeds: 1
overrides: {{{overrides}}}
"""


@pytest.mark.parametrize(
    ("overrides", "detail", "compared"),
    [
        ("", "learning_rate 0.5, batch_size 512", False),
        ("learning_rate: 0.1, phase1_epochs: 1", "learning_rate 0.5, batch_size 512", False),
        ("learning_rate: 0.5, batch_size: 512", "", True),  # the page tells these settings of all
    ],
)
def test_a_row_trained_in_a_way_of_its_own_says_so_and_is_beside_nothing(tmp_path, overrides, detail, compared):
    grid = grid_of(finished_study(tmp_path / "mine", BESIDE_THE_PAPER.format(overrides=overrides)))
    (row,) = [row for row in grid.rows if row.method == "crust"]
    assert row.detail == detail
    assert {grid.summary(row, column, ACCURACY).paper is not None for column in grid.columns} == {compared}


def test_what_our_reproduction_tunes_for_a_table_is_compared_with_it(tmp_path):
    study = write_study(tmp_path / "mine", find_study("mnist_label_100")[1])
    grid = grid_of(study)
    (row,) = [row for row in grid.rows if row.method == "replay"]
    assert row.label == "Replay (learning_rate 0.005)"
    assert all(grid.summary(row, column, ACCURACY).paper is not None for column in grid.columns)


def test_what_was_not_run_has_the_papers_number_whatever_other_data_sets_keep(tmp_path):
    study = write_study(tmp_path / "mine", "id: mine\ntitle: Mine\ntable: main_label_0.5\n")
    run = config(dataset="mnist", memory=300, noise="label:0.5")
    write_run(study, run, result_of(run))
    grid = grid_of(study)
    (row,) = [row for row in grid.rows if row.method == "crust"]
    papers = {column.dataset: grid.summary(row, column, ACCURACY).paper for column in grid.columns}
    assert {"mnist", "mstar", "pathmnist"} <= set(papers)
    assert None not in papers.values()


def test_a_table_without_our_data_sets_adds_nothing(tmp_path):
    study = write_study(tmp_path / "mine", "id: mine\ntitle: Mine\ntable: mnist_label_300\n")
    write_run(study, config(), result_of(config()))
    grid = grid_of(study)
    assert [row.method for row in grid.rows] == ["crust"]
    assert [column.dataset for column in grid.columns] == ["digits"]


def test_a_row_with_another_memory_is_beside_nothing_of_the_papers(tmp_path):
    study = write_study(tmp_path / "mine", "id: mine\ntitle: Mine\ntable: mnist_label_300\n")
    run = config(dataset="mnist", memory=25)
    write_run(study, run, result_of(run))
    grid = grid_of(study)
    (row,) = [row for row in grid.rows if row.method == "crust"]
    assert all(grid.summary(row, column, ACCURACY).paper is None for column in grid.columns)
    (replay,) = [row for row in grid.rows if row.method == "replay"]
    assert any(grid.summary(replay, column, ACCURACY).paper is not None for column in grid.columns)


def test_a_row_whose_memory_is_chosen_otherwise_is_beside_nothing_of_the_papers(tmp_path):
    study = write_study(tmp_path / "mine", find_study("mnist_label_100")[1])
    grid = grid_of(study)
    compared = {
        row.label: any(grid.summary(row, column, ACCURACY).paper is not None for column in grid.columns)
        for row in grid.rows
    }
    assert not compared["CRUST (memory by random, learning_rate 0.005)"]
    assert compared["CRUST (learning_rate 0.0007)"]
    assert compared["CRUST (facility_location, learning_rate 0.0007)"]


ARROWED = """id: mine
title: Mine
table: main_label_0.5
datasets: [mnist, fashionmnist]
methods: [replay, {method: replay, selector: {name: herding}}, crust, cosine_crust]
noise: {kind: label, levels: [0.5]}
seeds: 1
"""


def test_a_row_whose_memory_is_chosen_otherwise_has_no_arrow_of_the_papers(tmp_path):
    accuracy = rankings(grid_of(finished_study(tmp_path / "mine", ARROWED)))[0]
    assert isinstance(accuracy, Ranking)
    assert accuracy.papers["Replay"] == "better"
    assert "Replay (memory by herding)" not in accuracy.papers


def test_a_row_says_every_field_that_tells_it_from_others(study):
    for memory in (10, 20):
        for noise in ("none", "label:0.4"):
            run = config(memory=memory, noise=noise)
            write_run(study, run, result_of(run))
    lone = config(memory=10, noise="label:0.2")
    write_run(study, lone, result_of(lone))
    grid = grid_of(study)
    assert [row.label for row in grid.rows] == ["CRUST (memory 10)", "CRUST (memory 20)"]
    assert len(grid.results(grid.rows[0], grid.columns[1])) == 1


def test_settings_that_belong_to_a_data_set_tell_nothing_apart(study):
    for dataset, memory in (("digits", 10), ("mnist", 300)):
        run = config(dataset=dataset, memory=memory)
        write_run(study, run, result_of(run))
    grid = grid_of(study)
    assert [row.label for row in grid.rows] == ["CRUST"]
    assert [column.dataset for column in grid.columns] == ["digits", "mnist"]


def test_no_noise_and_noise_of_level_zero_share_a_column_but_not_a_cell(study):
    for noise in ("none", "label:0"):
        write_run(study, config(noise=noise), result_of(config(noise=noise)))
    grid = grid_of(study)
    assert len(grid.columns) == 1
    assert [row.detail.partition(":")[0] for row in grid.rows] == ["none", "label"]


def test_what_the_paper_has_and_we_have_not_is_missing(tmp_path):
    study = write_study(tmp_path / "study", "id: t\ntitle: T\ntable: mnist_label_100\n")
    run = config("replay", "label:0.5", dataset="mnist", memory=100)
    write_run(study, run, result_of(run, 0.18))
    grid = grid_of(study)
    assert [row.method for row in grid.rows] == ["replay", "crust", "cosine_crust"]
    assert [column.noise.level for column in grid.columns] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    table = study_tables("t", grid)[0]
    text = as_markdown(table)
    assert "18.0<br>n = 1<br>paper 18 ± 2<br>+0.0" in text
    assert text.count("missing<br>") == 17
    assert "missing<br>n = 0<br>paper 75 ± 2" in text


def test_other_data_noise_or_memory_is_not_compared(tmp_path):
    study = write_study(tmp_path / "study", "id: t\ntitle: T\ntable: mnist_label_100\n")
    runs = [
        config(noise="label:0.5", dataset="mnist", memory=30),
        config(noise="salt_and_pepper:0.5", dataset="mnist", memory=100),
        config(noise="label:0.5", dataset="digits", memory=100),
        config(noise="label:0.45", dataset="mnist", memory=100),
    ]
    for run in runs:
        write_run(study, run, result_of(run))
    grid = grid_of(study)
    ours = [(row, column) for row in grid.rows for column in grid.columns if grid.results(row, column)]
    assert len(ours) == 4
    assert all(grid.summary(*cell, ACCURACY).paper is None for cell in ours)


@pytest.mark.parametrize("changes", [{"classes_per_experience": 2}, {"first_classes": 1}])
def test_classes_that_come_otherwise_than_in_the_paper_are_beside_nothing_of_it(tmp_path, changes):
    study = write_study(tmp_path / "study", "id: t\ntitle: T\ntable: mnist_label_300\n")
    run = config(noise="label:0.5", dataset="mnist", memory=300, **changes)
    write_run(study, run, result_of(run))
    grid = grid_of(study)
    papers = {row.method: [grid.summary(row, column, ACCURACY).paper for column in grid.columns] for row in grid.rows}
    assert set(papers["crust"]) == {None}
    assert None not in papers["replay"]  # which was not run


def test_methods_without_a_memory_are_compared_whatever_its_size(tmp_path):
    study = write_study(tmp_path / "study", "id: t\ntitle: T\ntable: main_label_0.5\n")
    run = config("naive", "label:0.5", dataset="mnist", memory=1)
    write_run(study, run, result_of(run, 0.1111))
    grid = grid_of(study)
    assert grid.summary(Row("naive"), grid.columns[0], ACCURACY).paper == (0.11, 0.0)
    assert [column.dataset for column in grid.columns] == list(paper_table("main_label_0.5").datasets)


@pytest.mark.parametrize(
    ("mean", "paper", "outside"),
    [
        (0.90, (0.86, 0.08), 0),
        (1.00, (0.80, 0.10), 0),
        (0.65, (0.86, 0.08), -1),
        (0.50, (0.16, 0.02), 1),
        (0.1111, (0.11, 0.0), 0),
        (0.115, (0.11, 0.0), 0),
        (0.116, (0.11, 0.0), 1),
        (0.5, None, 0),
        (math.nan, (0.5, 0.1), 0),
    ],
)
def test_the_mark_means_outside_two_deviations_and_rounding(mean, paper, outside):
    assert summary(mean, paper).outside == outside


def test_every_format_tells_the_same(tmp_path):
    study = write_study(tmp_path / "study", "id: t\ntitle: T\ntable: mnist_label_100\n")
    for seed, accuracy in enumerate((0.3, 0.4)):
        run = config("replay", "label:0.5", dataset="mnist", memory=100, seed=seed)
        write_run(study, run, result_of(run, accuracy))
    table = study_tables("t", grid_of(study))[0]
    assert table.name == "t-accuracy"
    assert "35.0 ± 7.1<br>n = 2<br>paper 18 ± 2<br>+17.0 ▲" in as_markdown(table)
    latex = as_latex(table)
    assert r"\shortstack[r]{35.0 $\pm$ 7.1\\n = 2\\paper 18 $\pm$ 2\\+17.0 $\blacktriangle$}" in latex
    assert latex.count("&") == 4 * 6
    rows = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert len(rows) == 18
    (ours,) = [row for row in rows if row["seeds"] == "2"]
    assert (ours["mean"], ours["paper_mean"], ours["paper_std"], ours["outside"]) == ("0.35", "0.18", "0.02", "above")
    assert ours["difference"] == "0.17"
    assert ours["interval_low"] == "0.3"
    assert {row["mean"] for row in rows if row is not ours} == {""}


def test_many_data_sets_with_many_noises_have_a_table_each(study):
    for dataset in ("digits", "mnist"):
        for noise in ("label:0.2", "label:0.4"):
            run = config(dataset=dataset, noise=noise)
            write_run(study, run, result_of(run))
    tables = study_tables("s", grid_of(study))
    assert [table.name for table in tables][:2] == ["s-digits-accuracy", "s-mnist-accuracy"]
    assert tables[0].headings == ("20 %", "40 %")
    assert tables[0].caption == "Accuracy: digits, share of flipped labels"


def test_a_dash_where_there_is_nothing_to_measure(study):
    for method in ("naive", "joint", "replay"):
        write_run(study, config(method), result_of(config(method)))
    tables = {table.measure: table for table in study_tables("s", grid_of(study))}
    assert "| Joint | –<br>n = 1 |" in as_markdown(tables[FORGETTING])
    assert [row.method for row, _ in tables[PURITY].rows] == ["replay"]


def test_a_method_without_memory_lacks_no_purity_while_it_is_not_finished(study):
    write_run(study, config("replay"), result_of(config("replay")))
    for method in ("naive", "crust"):
        write_run(study, config(method))
    (table,) = [table for table in study_tables("s", grid_of(study)) if table.measure is PURITY]
    assert [row.method for row, _ in table.rows] == ["replay", "crust"]


def test_hostile_names_stay_names(study):
    evil = "=cmd()|<b>&_%$#{}~^\\ *x*\n"
    run = config(dataset=evil)
    write_run(study, run, result_of(run))
    run = config()
    write_run(study, run, result_of(run))
    table = study_tables(evil, grid_of(study))[0]
    assert "/" not in safe_name("../../etc", evil)
    markdown = as_markdown(table)
    assert "<b>" not in markdown
    assert r"=cmd()\|&lt;b&gt;&amp;\_%$#{}\~^\\ \*x\*" in markdown
    assert r"\&\_\%\$\#\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}" in as_latex(table)
    assert next(csv.DictReader(io.StringIO(as_csv(table))))["dataset"].startswith("'=cmd()")


def test_the_papers_numbers_are_all_there():
    assert len(paper_tables()) == 13
    assert paper_table("main_label_0.5").value("cosine_crust", 0.5, "forgetting", "mstar") == (0.0, 0.05)
    assert paper_table("cifar10_label_300").value("joint", 0.1, "accuracy", "cifar10") is None
    assert paper_table("fashionmnist_purity_uniform").value("replay", 0.3, "purity", "fashionmnist") == (0.7, 0.04)
    assert paper_table("mnist_label_300").value("icarl", 0.0, "forgetting", "mnist") == (-0.09, 0.06)
    for name in paper_tables():
        table = paper_table(name)
        for method in table.methods:
            for dataset in table.datasets:
                values = [table.value(method, level, table.measures[0], dataset) for level in table.levels]
                assert sum(value is None for value in values) <= (name == "cifar10_label_300")


def test_the_main_table_agrees_with_the_others():
    main = paper_table("main_label_0.5")
    for name in ("mnist_label_300", "fashionmnist_label_300", "mstar_label_60", "pathmnist_label_256"):
        other = paper_table(name)
        for method in main.methods:
            here, there = (table.value(method, 0.5, "accuracy", other.datasets[0]) for table in (main, other))
            assert here == there, (name, method)


def test_names_that_become_one_file_name_get_two_files(study):
    for dataset in ("a b", "a_b"):
        for noise in ("label:0.2", "label:0.4"):
            run = config(dataset=dataset, noise=noise)
            write_run(study, run, result_of(run))
    names = [table.name for table in study_tables("s", grid_of(study))]
    assert names[:2] == ["s-a_b-accuracy", "s-a_b-accuracy-2"]
    assert len(set(names)) == len(names)
