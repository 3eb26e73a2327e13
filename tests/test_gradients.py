"""Last-layer gradients against automatic differentiation."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from continual_crust.errors import InputError
from continual_crust.field.settings import Settings
from continual_crust.models import build_model, features_and_logits, last_linear
from continual_crust.selection import FactoredPoints, GradientSpace, last_layer_gradients
from continual_crust.selection.points import distances, inner_products, prepared, squared_norms
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.strategies.network import Network


@pytest.fixture
def layer() -> tuple[nn.Linear, torch.Tensor, torch.Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(5, 3), torch.randn(7, 5), torch.randint(0, 3, (7,))


def autograd_rows(layer: nn.Linear, features: torch.Tensor, labels: torch.Tensor, space: str) -> torch.Tensor:
    rows = []
    for row, label in zip(features, labels, strict=True):
        row = row.clone().requires_grad_()
        logits = layer(row)
        loss = functional.cross_entropy(logits[None], label[None])
        wanted = {"logits": [logits], "input": [row], "parameters": list(layer.parameters())}[space]
        found = torch.autograd.grad(loss, wanted)
        rows.append(found[0] if len(found) == 1 else torch.cat([found[0], found[1][:, None]], dim=1).flatten())
    return torch.stack(rows)


@pytest.mark.parametrize("space", [space.value for space in GradientSpace])
def test_gradients_are_those_of_autograd(layer, space: str) -> None:
    linear, features, labels = layer
    ours = last_layer_gradients(features, linear(features), labels, linear.weight, space)
    dense = ours.multiplied_out() if isinstance(ours, FactoredPoints) else ours
    assert torch.allclose(dense, autograd_rows(linear, features, labels, space), atol=1e-6)
    assert not dense.requires_grad


def test_without_bias_there_is_no_gradient_of_one(layer) -> None:
    _, features, labels = layer
    linear = nn.Linear(5, 3, bias=False)
    candidates = Network(linear, torch.device("cpu")).candidates(features, linear(features), labels)
    ours = candidates.gradients(GradientSpace.PARAMETERS)
    assert isinstance(ours, FactoredPoints)
    expected = autograd_rows(linear, features, labels, "parameters").flatten(1)
    assert torch.allclose(ours.multiplied_out(), expected, atol=1e-6)


def test_a_bias_itself_is_no_answer_to_whether_there_is_one(layer) -> None:
    linear, features, labels = layer
    with pytest.raises(InputError, match="give True or False, not the tensor"):
        last_layer_gradients(features, linear(features), labels, linear.weight, bias=linear.bias)


def test_factored_geometry_is_that_of_the_multiplied_out_points(layer) -> None:
    linear, features, labels = layer
    factored = last_layer_gradients(features, linear(features), labels, linear.weight, "parameters")
    assert isinstance(factored, FactoredPoints)
    dense = factored.multiplied_out()
    assert torch.allclose(squared_norms(factored), squared_norms(dense), atol=1e-5)
    assert torch.allclose(inner_products(factored, factored), dense @ dense.T, atol=1e-5)
    exact = torch.cdist(dense.double(), dense.double()).float()
    assert torch.allclose(distances(prepared(factored), prepared(factored)), exact, atol=1e-4)


def test_gradients_do_not_change_the_logits(layer) -> None:
    linear, features, labels = layer
    logits = linear(features)
    before = logits.detach().clone()
    last_layer_gradients(features, logits, labels, linear.weight, "logits")
    assert torch.equal(logits, before)


@pytest.mark.parametrize("rows", [slice(3), slice(0)])
def test_what_belongs_to_other_samples_is_refused(layer, rows: slice) -> None:
    linear, features, labels = layer
    logits = linear(features)
    for wrong in (
        (features[rows], logits, labels),
        (features, logits[rows], labels),
        (features, logits, labels[rows]),
    ):
        with pytest.raises(InputError, match="are not of the same samples"):
            last_layer_gradients(*wrong, linear.weight)
    for wrong in ((features[0], logits, labels), (features, logits, labels.float()), (features, logits, labels[0])):
        with pytest.raises(InputError, match="labels whole numbers"):
            last_layer_gradients(*wrong, linear.weight)


def test_what_is_no_tensor_or_does_not_fit_is_refused(layer) -> None:
    linear, features, labels = layer
    logits = linear(features)
    for wrong in (labels.tolist(), labels.numpy()):
        with pytest.raises(InputError, match=r"labels are a .*; give a tensor"):
            last_layer_gradients(features, logits, wrong, linear.weight)
    with pytest.raises(InputError, match=r"features are a sparse tensor; give features\.to_dense"):
        last_layer_gradients(features.to_sparse(), logits, labels, linear.weight)
    with pytest.raises(InputError, match=r"logits are of type torch\.float8_e5m2, .*; give logits\.float"):
        last_layer_gradients(features, logits.to(torch.float8_e5m2), labels, linear.weight)
    with pytest.raises(InputError, match=r"logits are of type torch\.int64"):
        last_layer_gradients(features, logits.long(), labels, linear.weight)
    with pytest.raises(InputError, match=r"weight is not of shape \(3, 5\)"):
        last_layer_gradients(features, logits, labels, linear.weight.T, "input")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_half_precision_logits_are_not_rounded_away(layer, dtype: torch.dtype) -> None:
    linear, features, labels = layer
    logits = 9.0 * functional.one_hot(labels, 3).to(dtype)  # p is above 0.999
    found = last_layer_gradients(features, logits, labels, linear.weight, "logits")
    assert torch.equal(found, last_layer_gradients(features, logits.float(), labels, linear.weight, "logits"))
    assert torch.allclose(found.sum(dim=1), torch.zeros(7), atol=1e-7)


def test_weights_may_be_of_another_precision(layer) -> None:
    linear, features, labels = layer
    logits = linear(features)
    plain, double = (
        last_layer_gradients(features, logits, labels, w, "input") for w in (linear.weight, linear.weight.double())
    )
    assert torch.equal(plain, double)


def test_labels_that_are_no_classes_are_refused(layer) -> None:
    linear, features, labels = layer
    logits = linear(features)
    for wrong in (labels - 1 - labels.min(), labels + logits.shape[1]):
        with pytest.raises(InputError, match=r"labels go from .* and logits have"):
            last_layer_gradients(features, logits, wrong, linear.weight)
    with pytest.raises(InputError, match="true or false"):
        last_layer_gradients(features, logits, labels > 0, linear.weight)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.uint16])
def test_labels_of_any_whole_number_type_are_the_same(layer, dtype: torch.dtype) -> None:
    linear, features, labels = layer
    logits = linear(features)
    expected, found = (
        last_layer_gradients(features, logits, of_type, linear.weight, "logits")
        for of_type in (labels, labels.to(dtype))
    )
    assert torch.equal(expected, found)


def test_an_unknown_space_is_told_wherever_it_is_named(layer) -> None:
    linear, features, labels = layer
    for name_it in (
        lambda space: last_layer_gradients(features, linear(features), labels, linear.weight, space),
        lambda space: SelectorConfig(space=space),
        lambda space: Settings(space=space),
    ):
        with pytest.raises(InputError, match="no gradient space 'imput'; did you mean 'input'"):
            name_it("imput")


@pytest.mark.parametrize("name", ["simple_cnn", "resnet18", "efficientnet_v2_s"])
def test_the_last_layer_of_each_model_is_reached(name: str) -> None:
    model = build_model(name, (1, 32, 32), classes=4).eval()
    features, logits = features_and_logits(model, torch.rand(2, 1, 32, 32))
    assert logits.shape == (2, 4)
    assert torch.allclose(last_linear(model)(features), logits, atol=1e-6)


class HeadFirst(nn.Module):
    """Registers a layer behind its head, and does not use it."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.unused = nn.Linear(4, 2), nn.Linear(4, 9)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(images.flatten(1))


def test_any_module_ending_in_a_linear_layer_will_do() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 2))
    features, logits = features_and_logits(model, torch.rand(3, 1, 3, 4))
    assert features.shape == (3, 6)
    assert logits.shape == (3, 2)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.Softmax(dim=1)), "does not end in its last linear layer"),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.ReLU(inplace=True)), "does not end in its last linear layer"),
        (HeadFirst(), r"registered last, Linear\(in_features=4, out_features=9"),
        (nn.Sequential(nn.Flatten(), nn.ReLU()), "has no linear layer"),
    ],
)
def test_other_modules_are_refused(model: nn.Module, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        features_and_logits(model, torch.rand(3, 1, 2, 2))
