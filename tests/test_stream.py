"""How a data set becomes a stream of experiences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from continual_crust.data import Dataset, Experience, Noise, Samples, Stream
from continual_crust.errors import InputError

LABEL_NOISE = Noise.parse("label:0.4")


def numbered_dataset(classes: int = 6, per_class: int = 30) -> Dataset:
    """Every image is different and its pixels say its position; sorted by class, as folders are."""
    count = classes * per_class
    numbers = torch.arange(count)
    images = torch.stack([numbers // 256, numbers % 256], 1).to(torch.uint8).reshape(count, 1, 1, 2)
    labels = torch.arange(classes).repeat_interleave(per_class)
    names = tuple(f"class {label}" for label in range(classes))
    return Dataset("numbered", images, labels, images.flip(0), labels.flip(0), names)


def positions(images: torch.Tensor) -> torch.Tensor:
    return images[:, 0, 0, 0].long() * 256 + images[:, 0, 0, 1].long()


def everything(stream: Stream) -> Samples:
    return Samples.concatenate([experience.samples for experience in stream])


@given(st.integers(0, 12), st.integers(1, 14), st.integers(1, 5), st.integers(0, 2**31))
def test_every_class_comes_exactly_once(later: int, first: int, each: int, seed: int) -> None:
    classes = first + later
    stream = Stream(numbered_dataset(classes, 1), None, seed, first, each)
    assert sorted(label for group in stream.groups for label in group) == list(range(classes))
    assert len(stream.groups[0]) == first
    assert all(len(group) == each for group in stream.groups[1:-1])
    assert len(stream) == len(stream.groups) == 1 + -(-later // each)


@pytest.mark.parametrize("numbers", [(0, 1), (2, 0), (-1, 1)])
def test_an_experience_needs_a_class(numbers: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="at least one class"):
        Stream(numbered_dataset(), None, 0, *numbers)


def test_the_first_experience_cannot_have_more_classes_than_there_are() -> None:
    assert len(Stream(numbered_dataset(classes=6), first_classes=6)) == 1
    with pytest.raises(InputError, match="has 6 classes; give fewer"):
        Stream(numbered_dataset(classes=6), first_classes=7)


def test_an_experience_holds_exactly_the_images_given_its_labels() -> None:
    dataset = numbered_dataset()
    stream = Stream(dataset, LABEL_NOISE, seed=5)
    for experience, group in zip(stream, stream.groups, strict=True):
        assert experience.classes == group
        assert set(experience.samples.labels.tolist()) <= set(group)
    samples = everything(stream)
    assert sorted(positions(samples.images).tolist()) == list(range(len(dataset.train_labels)))
    assert samples.weights.eq(1).all()


@pytest.mark.parametrize("kind", ["label", "asymmetric"])
def test_the_truth_is_found_by_id(kind: str) -> None:
    dataset = numbered_dataset()
    stream = Stream(dataset, Noise.parse(f"{kind}:0.4"), seed=5)
    samples = everything(stream)
    true_labels = dataset.train_labels[positions(samples.images)]
    assert torch.equal(stream.truth.labels[samples.ids], true_labels)
    assert torch.equal(stream.truth.flipped[samples.ids], samples.labels != true_labels)
    assert torch.equal(stream.truth.is_clean(samples.ids), samples.labels == true_labels)
    assert stream.truth.flipped.sum() == round(0.4 * len(samples))
    assert not stream.truth.perturbed.any()
    assert torch.equal(stream.clean_images_of(samples.ids), samples.images)


@pytest.mark.parametrize("kind", ["salt_and_pepper", "uniform"])
def test_damaged_images_are_known_by_id(kind: str) -> None:
    dataset = numbered_dataset()
    stream = Stream(dataset, Noise.parse(f"{kind}:0.3"), seed=2)
    samples = everything(stream)
    assert torch.equal(stream.truth.labels[samples.ids], samples.labels)
    assert torch.equal(stream.truth.is_clean(samples.ids), ~stream.truth.perturbed[samples.ids])
    assert stream.truth.perturbed.sum() == round(0.3 * len(samples))
    undamaged = samples[stream.truth.is_clean(samples.ids)]
    assert torch.equal(dataset.train_labels[positions(undamaged.images)], undamaged.labels)


def test_ids_name_every_image_once_and_betray_nothing() -> None:
    dataset = numbered_dataset(classes=10, per_class=50)
    stream = Stream(dataset, LABEL_NOISE, seed=1)
    samples = everything(stream)
    assert sorted(samples.ids.tolist()) == list(range(500))
    # Within what was given one label, neither the id nor the order may tell the true class.
    for experience in stream:
        ids, true_labels = experience.samples.ids, stream.truth.labels[experience.samples.ids]
        assert torch.equal(ids, ids.sort().values)
        correlation = torch.corrcoef(torch.stack([ids.float(), true_labels.float()]))[0, 1]
        assert abs(float(correlation)) < 0.35


def test_the_order_and_the_noise_do_not_depend_on_one_another() -> None:
    dataset = numbered_dataset()
    clean, noisy = Stream(dataset, None, seed=3), Stream(dataset, LABEL_NOISE, seed=3)
    assert clean.groups == noisy.groups
    regrouped = Stream(dataset, LABEL_NOISE, seed=3, first_classes=1, classes_per_experience=3)
    assert torch.equal(regrouped.truth.flipped, noisy.truth.flipped)
    by_id = [everything(stream) for stream in (regrouped, noisy)]
    by_id = [samples[samples.ids.argsort()] for samples in by_id]
    assert torch.equal(by_id[0].labels, by_id[1].labels)
    assert torch.equal(by_id[0].images, by_id[1].images)


def test_the_seed_decides_order_noise_and_ids() -> None:
    dataset = numbered_dataset()
    first, again, other = (Stream(dataset, LABEL_NOISE, seed) for seed in (7, 7, 8))
    assert first.groups == again.groups != other.groups
    assert torch.equal(everything(first).ids, everything(again).ids)
    assert torch.equal(everything(first).labels, everything(again).labels)
    assert not torch.equal(first.truth.flipped, other.truth.flipped)


@pytest.mark.parametrize("noise", ["label:1", "salt_and_pepper:1", "uniform:1"])
def test_the_test_sets_and_the_data_set_stay_clean(noise: str) -> None:
    dataset = numbered_dataset()
    before = [tensor.clone() for tensor in (dataset.train_images, dataset.train_labels)]
    stream = Stream(dataset, Noise.parse(noise))
    for index, group in enumerate(stream.groups):
        images, labels = stream.test(index)
        assert sorted(set(labels.tolist())) == sorted(group)
        assert len(labels) == 30 * len(group)
        assert torch.equal(dataset.train_labels[positions(images)], labels)
    assert torch.equal(dataset.train_images, before[0])
    assert torch.equal(dataset.train_labels, before[1])


def test_changing_what_a_stream_gave_does_not_change_the_stream() -> None:
    stream = Stream(numbered_dataset())
    stream[0].samples.images.zero_()
    stream.test(0)[0].zero_()
    assert stream[0].samples.images.any()
    assert stream.test(0)[0].any()


def test_an_experience_that_does_not_exist_is_an_index_error() -> None:
    stream = Stream(numbered_dataset(classes=3))
    with pytest.raises(IndexError):
        stream[2]


@pytest.mark.parametrize("labels", [torch.zeros(4, dtype=torch.int32), torch.zeros(3, dtype=torch.int64)])
def test_an_experience_has_a_label_for_each_image(labels: torch.Tensor) -> None:
    samples = Samples.of(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), labels)
    with pytest.raises(InputError, match="labels of an experience are not an int64 tensor with one for each image"):
        Experience((0,), samples)


def test_an_experience_is_made_of_samples() -> None:
    with pytest.raises(InputError, match="samples of an experience are a tuple; give Samples"):
        Experience((0,), (BLACK, ZEROS))  # type: ignore[arg-type]


BLACK, ZEROS = torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("classes", "images", "labels", "told"),
    [
        ((0,), BLACK / 255, ZEROS, "images of an experience are not bytes"),
        ((0,), BLACK[:, 0], ZEROS, "images of an experience are not bytes"),
        ((0,), BLACK, ZEROS + 3, r"with the classes \(0,\) has images labelled 3"),
        ((), BLACK, ZEROS, r"with the classes \(\) has images labelled 0"),
        ((-1,), BLACK, ZEROS - 1, r"classes of an experience are \(-1,\)"),
        (0, BLACK, ZEROS, "classes of an experience are 0"),
        (("fox",), BLACK, ZEROS, r"classes of an experience are \('fox',\)"),
    ],
)
def test_an_experience_of_ones_own_is_checked(
    classes: Any, images: torch.Tensor, labels: torch.Tensor, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        Experience(classes, Samples.of(images, labels))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("digits",), "cannot be made of 'digits'; give a Dataset"),
        ((numbered_dataset(), 0.4), "noise is 0.4; give its kind"),
    ],
)
def test_a_stream_of_other_things_is_refused(arguments: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Stream(*arguments)


def test_samples_need_labels_in_a_tensor() -> None:
    with pytest.raises(InputError, match="labels of samples are a list"):
        Samples.of(BLACK, [0, 0, 0, 0])  # type: ignore[arg-type]


def test_a_part_of_a_stream_is_a_list_of_its_experiences() -> None:
    stream = Stream(numbered_dataset(classes=5))
    assert [experience.classes for experience in stream[1:]] == list(stream.groups[1:])
    assert [experience.classes for experience in stream[::-1]] == list(stream.groups[::-1])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"train_images": torch.zeros(4, 1, 8, 8)}, "training images of own are not bytes"),
        ({"test_images": torch.zeros(4, 8, 8, dtype=torch.uint8)}, "test images of own are not bytes"),
        ({"train_labels": torch.tensor([0, 1])}, "training labels of own are not an int64 tensor"),
        ({"test_labels": torch.zeros(4)}, "test labels of own are not an int64 tensor"),
        ({"train_labels": torch.tensor([1, 2, 1, 2])}, "go from 1 to 2; number its 2 classes from 0"),
    ],
)
def test_data_of_ones_own_is_checked(changed: dict[str, torch.Tensor], told: str) -> None:
    images, labels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
    right = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    Dataset("own", **right, class_names=("a", "b"))
    with pytest.raises(InputError, match=told):
        Dataset("own", **(right | changed), class_names=("a", "b"))
