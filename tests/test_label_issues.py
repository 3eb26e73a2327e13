"""Laws of finding wrong labels, and that it finds them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from continual_crust.data import Dataset, Noise
from continual_crust.data.noise import corrupt
from continual_crust.errors import InputError
from continual_crust.randomness import generator_for
from continual_crust.selection import points
from continual_crust.selection.label_issues import LabelIssues, find_label_issues

CLASSES = 4


def made_up(samples: int, seed: int, wrong: float = 0.2) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Labels, features and logits of an undecided network, and which labels are wrong."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.arange(samples) % CLASSES
    features = torch.nn.functional.one_hot(true, 8) * 4.0 + torch.randn(samples, 8, generator=generator) * 0.5
    flipped = torch.rand(samples, generator=generator) < wrong
    labels = torch.where(flipped, (true + 1) % CLASSES, true)
    return labels, features, features[:, :CLASSES] / 4, flipped


def of_both_kinds(samples: int = 120, seed: int = 0) -> list[LabelIssues]:
    labels, features, logits, _ = made_up(samples, seed)
    by_features = find_label_issues(labels, features=features, logits=logits)
    return [by_features, find_label_issues(labels, (4 * logits).softmax(dim=1))]


def test_wrong_labels_are_found_and_mended() -> None:
    labels, features, logits, flipped = made_up(200, seed=1)
    issues = find_label_issues(labels, features=features, logits=logits)
    assert torch.equal(issues.mask, flipped)
    assert torch.equal(issues.suggested, torch.arange(200) % CLASSES)


@pytest.mark.parametrize(("level", "least_precision"), [(0.1, 0.55), (0.5, 0.85)])
def test_digits(level: float, least_precision: float, digits: Dataset) -> None:
    """With pixels for features and a network that knows nothing yet: all the geometry there is."""
    noisy = corrupt(
        digits.train_images, digits.train_labels, 10, Noise.parse(f"label:{level}"), generator_for(0, "noise")
    )
    pixels = digits.train_images.flatten(1).float()
    issues = find_label_issues(noisy.labels, features=pixels, logits=torch.zeros(len(pixels), 10))
    precision = float(noisy.flipped[issues.mask].double().mean())
    recall = float(issues.mask[noisy.flipped].double().mean())
    assert precision > least_precision
    assert recall > 0.9
    mended = issues.suggested == digits.train_labels
    assert mended.double().mean() > (noisy.labels == digits.train_labels).double().mean() + 0.2 * level


def test_indices_are_the_mask_in_order_of_doubt() -> None:
    for issues in of_both_kinds():
        assert len(issues) > 0
        assert sorted(issues.indices.tolist()) == issues.mask.nonzero().flatten().tolist()
        doubts = issues.quality[issues.indices]
        assert (doubts.diff() >= 0).all()
        assert doubts.max() < issues.quality[~issues.mask].min()
        assert issues.quality.min() >= 0
        assert issues.quality.max() <= 1


@settings(max_examples=25, deadline=None)
@given(samples=st.integers(0, 40), seed=st.integers(0, 5), threshold=st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_any_number_of_samples(samples: int, seed: int, threshold: float) -> None:
    labels, features, logits, _ = made_up(samples, seed)
    found = [find_label_issues(labels, logits.softmax(dim=1), threshold=threshold)]
    if len(labels.unique()) != 1:
        found.append(find_label_issues(labels, features=features, logits=logits, threshold=threshold))
    for issues in found:
        assert issues.mask.shape == issues.quality.shape == issues.suggested.shape == (samples,)
        assert issues.quality.isfinite().all()
        assert torch.equal(issues.mask, issues.quality < threshold)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000))
def test_order_of_the_samples_does_not_matter(seed: int) -> None:
    labels, features, logits, _ = made_up(60, seed=3)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(seed))
    plain = find_label_issues(labels, features=features, logits=logits)
    mixed = find_label_issues(labels[order], features=features[order], logits=logits[order])
    assert torch.allclose(mixed.quality, plain.quality[order], atol=1e-5)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = of_both_kinds()[0].quality
    monkeypatch.setattr(points, "BLOCK_ELEMENTS", 100)
    assert torch.allclose(of_both_kinds()[0].quality, whole, atol=1e-6)


def test_scale_of_the_features_does_not_matter() -> None:
    labels, features, logits, _ = made_up(80, seed=2)
    scale = torch.linspace(0.1, 10, 80)[:, None]
    masks = [find_label_issues(labels, features=f, logits=logits * 0).mask for f in (features, features * 7)]
    assert torch.equal(*masks)
    lengths = find_label_issues(labels, features=features * scale, logits=logits * 0)
    assert lengths.mask.any()


def test_arrays_and_tensors_are_alike() -> None:
    labels, features, logits, _ = made_up(80, seed=2)
    tensors = find_label_issues(labels, features=features.requires_grad_(), logits=logits)
    arrays = find_label_issues(labels.numpy(), features=features.detach().numpy(), logits=logits.detach().numpy())
    assert torch.equal(tensors.quality, arrays.quality)
    assert np.asarray(arrays.indices).dtype == np.int64


@pytest.mark.filterwarnings("error")
def test_arrays_of_any_kind_are_welcome() -> None:
    labels, features, logits, _ = made_up(40, seed=1)
    whole = (10 * logits).round()
    expected = find_label_issues(labels, features=features, logits=whole).quality
    backwards = labels.flip(0).numpy()[::-1]
    fixed = features.numpy().copy()
    fixed.flags.writeable = False
    index = list(range(7, 47))
    swapped, small = labels.numpy().astype(">i8"), labels.numpy().astype(np.uint16)
    for same in (backwards, swapped, small, labels.to(torch.uint64), pd.Series(labels, index=index)):
        issues = find_label_issues(same, features=fixed, logits=pd.DataFrame(whole.numpy(), index=index))
        assert torch.equal(issues.quality, expected)
    assert torch.allclose(find_label_issues(labels, features=features, logits=whole.long()).quality, expected)
    assert find_label_issues([0, 1], [[0, 1], [0, 1]]).indices.tolist() == [0]


def test_probabilities_may_be_sparse_or_a_little_above_one() -> None:
    labels, probabilities = torch.tensor([0, 1]), torch.tensor([[1.001, 0.0], [1.0, 0.0]])
    found = [find_label_issues(labels, given).indices.tolist() for given in (probabilities, probabilities.to_sparse())]
    assert found == [[1], [1]]


def test_small_class_is_not_outvoted() -> None:
    """Three samples among hundreds: a vote among neighbours would always go against them."""
    labels, features, logits, _ = made_up(400, seed=4, wrong=0.0)
    few = torch.cat([(labels != 3).nonzero().flatten(), (labels == 3).nonzero().flatten()[:3]])
    issues = find_label_issues(labels[few], features=features[few], logits=logits[few])
    assert not issues.mask[-3:].any()


def test_only_sample_of_a_class_is_not_doubted() -> None:
    labels, features, logits, _ = made_up(81, seed=4, wrong=0.0)
    labels[0] = 3
    single = torch.cat([torch.tensor([0]), (labels != 3).nonzero().flatten()])
    issues = find_label_issues(labels[single], features=features[single], logits=logits[single])
    assert issues.quality[0] == 1
    assert issues.suggested[0] == 3


def test_same_image_with_two_labels_leaves_the_question_open() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    issues = find_label_issues(torch.tensor([0, 0, 1, 1]), features=features, logits=torch.zeros(4, 2))
    assert issues.quality.tolist() == [0.5] * 4
    assert not issues.mask.any()
    nothing = find_label_issues(torch.tensor([0]), torch.tensor([[0.0, 0.0, 1.0]])[:, :2])
    assert nothing.quality.tolist() == [0.5]


LABELS, TABLE = torch.tensor([0, 1, 1]), torch.full((3, 2), 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": LABELS}, "either probabilities, or features"),
        ({"labels": LABELS, "features": TABLE}, "together with logits"),
        ({"labels": LABELS, "probabilities": TABLE, "logits": TABLE}, "give one of them"),
        ({"labels": LABELS, "probabilities": TABLE[:2]}, "one row for each label"),
        ({"labels": LABELS, "features": TABLE[0], "logits": TABLE}, "one row for each label"),
        ({"labels": TABLE, "probabilities": TABLE}, "one row for each label"),
        ({"labels": LABELS, "probabilities": TABLE * float("nan")}, "NaN or infinity in 3 of 3 rows"),
        ({"labels": LABELS, "probabilities": -TABLE}, "negative; give the output of a softmax"),
        ({"labels": LABELS, "probabilities": TABLE * 14}, "above 1, up to 7; give the output of a softmax"),
        ({"labels": LABELS, "probabilities": TABLE, "threshold": "low"}, "threshold is 'low'; qualities lie between"),
        ({"labels": LABELS + 1, "probabilities": TABLE}, "from 1 to 2, but there are columns for classes 0 to 1"),
        ({"labels": LABELS - 1, "features": TABLE, "logits": TABLE}, "from -1 to 0"),
        ({"labels": LABELS.float(), "features": TABLE, "logits": TABLE}, "whole numbers"),
        ({"labels": np.array(["0", "1", "1"]), "probabilities": TABLE}, "labels are of type <U1; give whole numbers"),
        ({"labels": ["0", "1", "1"], "features": TABLE, "logits": TABLE}, "labels are of type list; give whole numb"),
        ({"labels": LABELS, "probabilities": TABLE.numpy().astype(str)}, "probabilities are of type <U32; give numb"),
        ({"labels": LABELS, "probabilities": TABLE.to(torch.float8_e4m3fn)}, "give probabilities.float()"),
        ({"labels": LABELS, "probabilities": TABLE.to("meta")}, "meta, which holds no numbers"),
        ({"labels": LABELS * 0, "probabilities": TABLE[:, :1]}, "two classes or more"),
        ({"labels": LABELS * 0, "features": TABLE, "logits": TABLE}, "all labels are 0"),
        ({"labels": LABELS, "probabilities": TABLE, "threshold": 1.5}, "threshold is 1.5"),
    ],
)
def test_wrong_arguments_get_one_sentence(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_label_issues(**arguments)
