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


def on_two_default_devices(result: Callable[[], object]) -> tuple[object, object]:
    here = result()
    with torch.device("meta"):
        return here, result()


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

    here, there = on_two_default_devices(chosen)
    assert there == here


def test_label_issues() -> None:
    features, logits, labels, weight = outputs()
    given = labels.where(features[:, 0] > 0, 0)

    def found() -> list[object]:
        probabilities = logits.softmax(dim=1)
        return [
            find_label_issues(given, probabilities).indices.tolist(),
            find_label_issues(given, features=features, logits=logits).indices.tolist(),
            find_label_issues(given.tolist(), probabilities.tolist()).mask.tolist(),
            last_layer_gradients(features, logits, given, weight, "logits").tolist(),
        ]

    here, there = on_two_default_devices(found)
    assert there == here


@pytest.mark.parametrize("kind", NoiseKind)
def test_streams(kind: NoiseKind, few_digits: Dataset) -> None:
    def ids() -> list[object]:
        stream = Stream(few_digits, Noise(kind, 0.0 if kind is NoiseKind.NONE else 0.3), seed=0)
        return [(part.samples.ids.tolist(), part.samples.images.double().sum().item()) for part in stream]

    here, there = on_two_default_devices(ids)
    assert there == here


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    here, there = on_two_default_devices(lambda: next(build_model(name, (1, 32, 32), 3).parameters()).tolist())
    assert there == here


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

    here, there = on_two_default_devices(numbers)
    assert there == here


def test_theory(few_digits: Dataset) -> None:
    def report() -> object:
        config = RunConfig(
            "few_digits", "crust", "simple_cnn", Noise(NoiseKind.LABEL, 0.3), 0, Training(1, 1, memory_per_class=4)
        )
        finished = execute(config, few_digits, torch.device("cpu"))
        return repr(theory_report(finished, most_samples=10).as_dict())

    here, there = on_two_default_devices(report)
    assert there == here


def test_files_of_tensors() -> None:
    kept = {"a": torch.ones(2), "b": torch.zeros(0, 3)}
    here, there = on_two_default_devices(lambda: {name: tensor.tolist() for name, tensor in unpack(pack(kept)).items()})
    assert there == here
