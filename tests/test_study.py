"""Study files: what they mean, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from continual_crust.data import NoiseKind
from continual_crust.errors import InputError
from continual_crust.selection.selectors import SELECTORS, Candidates, SelectorConfig, select
from continual_crust.strategies import options_of
from continual_crust.studies.config import RunConfig
from continual_crust.studies.study import (
    LATER_SETTINGS,
    METHOD_REVISIONS,
    REVISION,
    SELECTOR_FIELDS,
    revision_of,
    run_id,
    settings_read,
)
from continual_crust.studies.study_file import find_study, parse_study, shipped_studies

GOOD = """\
id: mine
title: A study
datasets: [digits]
methods:
  - replay
  - method: crust
    selector: {rule: facility_location}
noise:
  kind: label
  levels: [0.0, 0.4]
memory: [5, 10]
seeds: [3, 4]
overrides: {phase1_epochs: 2}
"""


def test_a_study_is_all_combinations() -> None:
    study = parse_study(GOOD, "mine.yaml")
    runs = list(study.runs())
    assert len(runs) == len({run_id(run) for run in runs}) == 2 * 2 * 2 * 2
    assert {run.noise.level for run in runs} == {0.0, 0.4}
    assert {run.training.memory_per_class for run in runs} == {5, 10}
    assert {run.training.phase1_epochs for run in runs} == {2}
    assert {run.training.phase2_epochs for run in runs} == {10}
    assert {(run.method, run.selector.rule) for run in runs} == {
        ("replay", "centrality"),
        ("crust", "facility_location"),
    }
    assert [run.seed for run in runs] == [3] * 8 + [4] * 8


def test_what_keeps_no_memory_is_run_with_one_size_of_it() -> None:
    runs = list(parse_study(GOOD.replace("  - replay", "  - naive"), "s").runs())
    assert [run.training.memory_per_class for run in runs if run.method == "naive"] == [5] * 4
    assert len(runs) == 2 * 2 * (1 + 2)


def test_what_a_study_has_for_all_methods_leaves_out_those_that_would_not_read_it() -> None:
    shared = "overrides: {shift: 0.125, mirror: true, weighted_loss: true}"
    text = GOOD.replace("overrides: {phase1_epochs: 2}", shared)
    text = text.replace("  - replay", "  - replay\n  - sift\n  - joint")
    asked = {
        run.method: (run.training.shift, run.training.mirror, run.training.weighted_loss)
        for run in parse_study(text, "mine.yaml").runs()
    }
    assert asked["replay"] == asked["crust"] == (0.125, True, True)
    assert asked["sift"] == (0.0, False, True)
    assert asked["joint"] == (0.125, True, False)


def test_what_two_variants_come_to_alike_is_one_run() -> None:
    usual = "  - {method: crust, selector: {rule: facility_location}, training: {learning_rate: 0.001}}"
    assert len(list(parse_study(GOOD.replace("  - replay", usual), "s").runs())) == 2 * 2 * 2


def test_a_number_of_seeds_counts_from_zero() -> None:
    assert parse_study(GOOD.replace("[3, 4]", "3"), "s").seeds == (0, 1, 2)


def test_settings_of_a_selector_are_read_together() -> None:
    chosen = "  - {method: replay, selector: {name: cosine_crust, clusters: 3}}"
    assert {run.selector.clusters for run in parse_study(GOOD.replace("  - replay", chosen), "s").runs()} == {2, 3}


def test_numbers_with_an_exponent_are_numbers() -> None:
    study = parse_study(GOOD.replace("phase1_epochs: 2", "learning_rate: 1e-3"), "s")
    assert next(study.runs()).training.learning_rate == 0.001


def test_without_noise_there_is_one_level() -> None:
    lines = [line for line in GOOD.splitlines() if "noise" not in line and "kind" not in line and "levels" not in line]
    study = parse_study("\n".join(lines), "s")
    assert (study.noise, study.levels) == (NoiseKind.NONE, (0.0,))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("methods:", "metods:", "line 4: there is no field 'metods'; did you mean 'methods'"),
        ("  - replay", "  - replai", "line 5: there is no method 'replai'; did you mean 'replay'"),
        ("[digits]", "[digit]", "line 3: there is no data set 'digit'; did you mean 'digits'"),
        ("rule:", "rul:", "line 7: there is no field 'rul'; did you mean 'rule'"),
        ("rule: facility_location", "clusters: 9", "line 7: the selector 'crust' does not read clusters"),
        ("rule: facility", "name: herding, rule: facility", "line 7: the selector 'herding' does not read rule"),
        ("seeds: [3, 4]", "seeds: 2000000000", "line 12: 2000000000 seeds are more than 10000; for one"),
        ("  - replay", "  - {method: naive, selector: {name: crust}}", "line 5: method 'naive' keeps no memory"),
        (
            "  - replay",
            "  - {method: joint, training: {weighted_loss: true}}",
            "line 5: method 'joint' keeps no",
        ),
        ("  - replay", "  - {method: sift, training: {shift: 0.125}}", "line 5: method 'sift' moves and mirrors the"),
        ("facility_location", "facility", "line 7: there is no selection rule 'facility'; did you mean 'facility_loc"),
        ("kind: label", "kind: labels", "line 9: there is no noise 'labels'; did you mean 'label'"),
        ("0.4]", "1.4]", "line 10: noise level '1.4' is not a number from 0 to 1"),
        ("0.4]", "0.0]", "line 10: 'levels' must name one or more different levels"),
        ("kind: label", "kind: none", "line 10: noise of kind 'none' can only have level 0"),
        ("[5, 10]", "[5, 5]", "line 11: 'memory' names something twice"),
        ("[5, 10]", "[-1]", "line 11: '-1' is not a whole number of 0 or more"),
        ("[5, 10]", "[]", "line 11: this list is empty"),
        ("[3, 4]", "many", "line 12: 'many' is not a whole number of 1 or more"),
        ("phase1_epochs", "fase1_epochs", "line 13: there is no field 'fase1_epochs'; did you mean 'phase1_epochs'"),
        ("phase1_epochs: 2", "memory_per_class: 2", "line 13: there is no field 'memory_per_class'"),
        ("phase1_epochs: 2", "phase1_epochs: many", "line 13: phase1_epochs is 'many'; give a whole number"),
        ("phase1_epochs: 2", "first_classes: two", "line 13: first_classes is 'two'; give a whole number"),
        ("seeds: [3, 4]", "seeds: !foo 3", "line 12: a plain value is expected here"),
        ("  - replay", "  - replay\n  - replay", "line 5: 'methods' names something twice"),
        ("phase1_epochs: 2", "model: [resnet18]", "line 13: there is no model '['resnet18']'"),
        ("phase1_epochs: 2", "image_size: true", "line 13: image_size is True; give a whole number"),
        ("phase1_epochs: 2", "model: resnet", "line 13: there is no model 'resnet'; did you mean 'resnet18'"),
        ("id: mine", "id: ../mine", "would not do as a folder name"),
        ("title: A study", "title: A study\ntable: mnist_label_30", "line 3: there is no table of the paper 'mnist_"),
        ("title: A study\n", "", "the field 'title' is missing"),
        ("title: A study", "title: A study\ntitle: Another", "line 3: the field 'title' is given twice"),
        ("title: A study", "title: [", "this is not YAML"),
        ("title: A study", "title: !!python/object:os.system x", ""),
    ],
)
def test_what_a_study_cannot_mean_is_refused_with_its_line(old: str, new: str, sentence: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if not sentence:  # a tag that would run code is only ever text
        assert parse_study(text, "mine.yaml").title == "x"
        return
    with pytest.raises(InputError) as caught:
        parse_study(text, "mine.yaml")
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("mine.yaml")


@pytest.mark.parametrize("text", ["", "- a list", "word", "\x00", "{", "a: &b [*b]"])
def test_what_is_not_a_study_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_study(text, "mine.yaml")


@pytest.mark.parametrize(
    ("method", "name", "value", "wanted"),
    [
        ("der", "alpha", 3, 3.0),
        ("der", "alpha", "3", 3.0),
        ("sift", "scout_epochs", "2", 2),
        ("cumulative", "restart", "True", True),
        ("replay", "mixing", "equal", "equal"),
    ],
)
def test_options_are_given_as_text_or_as_what_they_are(method: str, name: str, value: Any, wanted: object) -> None:
    found = getattr(options_of(method, {name: value}), name)
    assert (found, type(found)) == (wanted, type(wanted))


@pytest.mark.parametrize(
    ("method", "name", "value", "sentence"),
    [
        ("der", "alpha", True, "give a number"),
        ("der", "alpha", [1], "give a number"),
        ("sift", "scout_epochs", 2.5, "give a whole number"),
        ("sift", "scout_epochs", "2.5", "give a whole number"),
        ("cumulative", "restart", 1, "give true or false"),
        ("cumulative", "restart", "yes", "give true or false"),
        ("replay", "mixing", 3, "give a name"),
        ("der", "alhpa", 3, "there is no der option 'alhpa'; did you mean 'alpha'"),
    ],
)
def test_options_are_never_bent_into_shape(method: str, name: str, value: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        options_of(method, {name: value})


def test_identity_covers_everything_that_determines_a_run() -> None:
    config = next(parse_study(GOOD, "s").runs())
    changes = [
        {"seed": 9},
        {"model": "resnet18"},
        {"first_classes": 3},
        {"training": dataclasses.replace(config.training, learning_rate=0.5)},
        {"training": dataclasses.replace(config.training, shift=0.1)},
        {"training": dataclasses.replace(config.training, mirror=True)},
        {"selector": SelectorConfig("herding")},
        {"selector": SelectorConfig("crust")},
        {"selector": SelectorConfig("crust", space="input")},
        {"selector": SelectorConfig("cosine_crust")},
        {"selector": SelectorConfig("cosine_crust", clusters=4)},
        {"options": {"mixing": "equal"}},
    ]
    ids = {run_id(dataclasses.replace(config, **change)) for change in changes}
    assert len(ids | {run_id(config)}) == len(changes) + 1


def test_settings_that_came_later_rename_no_run_from_before() -> None:
    config = next(parse_study(GOOD, "s").runs())
    plain = config.as_dict()
    for name in LATER_SETTINGS:
        del plain["training"][name]
    assert run_id(RunConfig.from_dict(plain)) == run_id(config)
    assert run_id(config, "3") == "digits-replay-label-0.0-k5-s3-777e763004"  # as it was named then


def test_numbers_that_are_equal_are_the_same_run() -> None:
    config = next(parse_study(GOOD, "s").runs())
    ids = {
        run_id(dataclasses.replace(config, training=dataclasses.replace(config.training, weight_decay=zero)))
        for zero in (0, 0.0, np.float32(0), np.int64(0))
    }
    assert len(ids) == 1
    with pytest.raises(InputError, match="weight_decay is inf; give a finite number"):
        dataclasses.replace(config.training, weight_decay=10**400)


def test_settings_that_a_selector_does_not_read_change_no_run() -> None:
    """Checked on the selectors themselves: what is not in the identity must not change a choice."""
    config = next(parse_study(GOOD, "s").runs())
    features = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    candidates = Candidates(features, features[:, :3], torch.zeros(40, dtype=torch.int64), torch.eye(3, 5))
    others: dict[str, Any] = {"rule": "facility_location", "space": "input", "clusters": 3, "min_cluster": 0.05}
    assert set(others) == SELECTOR_FIELDS - {"name"}
    for name in SELECTORS:
        plain = SelectorConfig(name)
        unread = {field: value for field, value in others.items() if field not in settings_read(name)}
        changed = dataclasses.replace(plain, **unread)
        ids = [run_id(dataclasses.replace(config, selector=selector)) for selector in (plain, changed)]
        assert ids[0] == ids[1]
        picks = [select(s, candidates, 8, torch.Generator().manual_seed(1)).indices for s in (plain, changed)]
        assert picks[0].tolist() == picks[1].tolist()


def test_a_method_can_have_a_revision_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    replay, crust = list(parse_study(GOOD, "s").runs())[:2]
    before = [run_id(config) for config in (replay, crust)]
    monkeypatch.setitem(METHOD_REVISIONS, "crust", 1)
    assert (revision_of("replay"), revision_of("crust")) == (f"{REVISION}", f"{REVISION}.1")
    assert run_id(replay) == before[0]
    assert run_id(crust) != before[1] == run_id(crust, f"{REVISION}")


def test_a_changed_default_makes_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_id(next(parse_study(GOOD, "s").runs()))
    monkeypatch.setattr("continual_crust.studies.study.BLEND", 0.6)
    assert run_id(next(parse_study(GOOD, "s").runs())) != before


def test_every_table_of_the_paper_has_a_study() -> None:
    shipped = shipped_studies()
    tables = {study.table for study in shipped.values() if study.table}
    assert tables == {
        "main_label_0.5",
        *(f"mnist_label_{size}" for size in (100, 200, 300)),
        "fashionmnist_label_300",
        "cifar10_label_300",
        "mstar_label_60",
        "pathmnist_label_256",
        "mnist_instance_128",
        "fashionmnist_instance_128",
        "mstar_instance_30",
        "fashionmnist_purity_salt_and_pepper",
        "fashionmnist_purity_uniform",
    }
    assert len(list(shipped["main_label_0.5"].runs())) == 5 * 10 * 5
    for name, study in shipped.items():
        assert study.id == name
        assert find_study(name)[0] == study


def test_a_study_can_show_samples_and_then_has_no_runs() -> None:
    text = "id: a\ntitle: b\ndatasets: [digits]\nshow: samples\n"
    assert list(parse_study(text, "s").runs()) == []
    with pytest.raises(InputError, match="line 5: a study that shows samples has no runs and so no 'seeds'"):
        parse_study(text + "seeds: 3\n", "s")
    with pytest.raises(InputError, match="did you mean 'samples'"):
        parse_study(text.replace("samples", "sample"), "s")


def test_unknown_studies_are_told() -> None:
    with pytest.raises(InputError, match="did you mean 'digits'"):
        find_study("digit")
    with pytest.raises(InputError, match=r"cannot read the study nowhere\.yaml"):
        find_study("nowhere.yaml")
