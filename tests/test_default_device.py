"""Whoever has set another default device than the CPU gets the same results, as nothing is made where it is not meant.

The device "meta" stands for a GPU: what comes to lie there by mistake has no numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from continual_crust.data import Dataset, Noise, NoiseKind, Stream
from continual_crust.models import MODELS, build_model
from continual_crust.selection import find_label_issues, last_layer_gradients
from continual_crust.selection.selectors import SELECTORS, Candidates, SelectorConfig, select
from continual_crust.strategies import STRATEGIES, Training
from continual_crust.studies.config import RunConfig
from continual_crust.studies.run import execute
from continual_crust.tensor_file import pack, unpack
from continual_crust.theory import theory_report

SIFTS = {"sift", "sift_oracle"}
"""These two do not keep to it yet."""


def same_on_any_default_device(result: Callable[[], object]) -> None:
    here = result()
    with torch.device("meta"):
        there = result()
    assert there == here


def outputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, logits, labels and weights of a last layer."""
    generator = torch.Generator().manual_seed(0)
    features, weight = (torch.randn(rows, 8, generator=generator, device="cpu") for rows in (60, 3))
    return features, features @ weight.T, torch.ones(60, dtype=torch.int64, device="cpu"), weight


@pytest.mark.parametrize("rule", ["centrality", "exact_centrality", "facility_location"])
@pytest.mark.parametrize("name", SELECTORS)
def test_selection(name: str, rule: str) -> None:
    def chosen() -> list[int]:
        generator = torch.Generator().manual_seed(0)
        return select(SelectorConfig(name, rule), Candidates(*outputs()), 9, generator).indices.tolist()

    same_on_any_default_device(chosen)


def test_label_issues() -> None:
    features, logits, labels, weight = outputs()
    given = labels.where(features[:, 0] > 0, 0)
    same_on_any_default_device(lambda: find_label_issues(given, logits.softmax(dim=1)).indices.tolist())
    same_on_any_default_device(lambda: find_label_issues(given, features=features, logits=logits).indices.tolist())
    same_on_any_default_device(lambda: find_label_issues(given.tolist(), logits.softmax(dim=1).tolist()).mask.tolist())
    same_on_any_default_device(lambda: last_layer_gradients(features, logits, given, weight, "logits").tolist())


@pytest.mark.parametrize("kind", NoiseKind)
def test_streams(kind: NoiseKind, few_digits: Dataset) -> None:
    def ids() -> list[object]:
        stream = Stream(few_digits, Noise(kind, 0.0 if kind is NoiseKind.NONE else 0.3), seed=0)
        return [(part.samples.ids.tolist(), part.samples.images.double().sum().item()) for part in stream]

    same_on_any_default_device(ids)


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    same_on_any_default_device(lambda: next(build_model(name, (1, 32, 32), 3).parameters()).tolist())


@pytest.mark.parametrize("method", [name for name in STRATEGIES if name not in SIFTS])
def test_runs(method: str, few_digits: Dataset) -> None:
    def numbers() -> object:
        noise = Noise(NoiseKind.LABEL, 0.3)
        training = Training(1, 1, memory_per_class=4, shift=0.2, mirror=True)
        selector = STRATEGIES[method].default_selector
        config = RunConfig("few_digits", method, "simple_cnn", noise, 0, training, selector)
        finished = execute(config, few_digits, torch.device("cpu"))
        state = finished.strategy.state()
        finished.strategy.restore(state)
        return finished.result.accuracy_matrix, finished.result.purity

    same_on_any_default_device(numbers)


def test_theory(few_digits: Dataset) -> None:
    def report() -> object:
        config = RunConfig(
            "few_digits", "crust", "simple_cnn", Noise(NoiseKind.LABEL, 0.3), 0, Training(1, 1, memory_per_class=4)
        )
        finished = execute(config, few_digits, torch.device("cpu"))
        return repr(theory_report(finished, most_samples=10).as_dict())

    same_on_any_default_device(report)


def test_files_of_tensors() -> None:
    kept = {"a": torch.ones(2), "b": torch.zeros(0, 3)}
    same_on_any_default_device(lambda: {name: tensor.tolist() for name, tensor in unpack(pack(kept)).items()})
