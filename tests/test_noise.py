"""What noise does to a training set, and what it leaves alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from continual_crust.data.noise import PERTURBED_PIXELS, Corrupted, Noise, NoiseKind, corrupt
from continual_crust.errors import InputError

LABEL_NOISE = [NoiseKind.LABEL, NoiseKind.ASYMMETRIC]
INSTANCE_NOISE = [NoiseKind.SALT_AND_PEPPER, NoiseKind.UNIFORM]


def training_set(count: int, classes: int = 5, channels: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    images = (torch.arange(count * channels * 6 * 7) % 251).to(torch.uint8)
    return images.reshape(count, channels, 6, 7), torch.arange(count) % classes


def noisy(count: int, noise: Noise, seed: int = 0, classes: int = 5, channels: int = 1) -> Corrupted:
    images, labels = training_set(count, classes, channels)
    return corrupt(images, labels, classes, noise, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", LABEL_NOISE)
@given(count=st.integers(1, 120), level=st.floats(0, 1), classes=st.integers(2, 12), seed=st.integers(0, 2**32))
def test_exactly_the_share_of_labels_is_wrong(
    kind: NoiseKind, count: int, level: float, classes: int, seed: int
) -> None:
    images, labels = training_set(count, classes)
    result = noisy(count, Noise(kind, level), seed, classes)
    assert torch.equal(result.images, images)
    assert torch.equal(result.labels != labels, result.flipped)
    assert result.flipped.sum() == round(level * count)
    assert result.labels.min() >= 0
    assert result.labels.max() < classes
    assert not result.perturbed.any()


def test_wrong_labels_are_uniform_over_the_other_classes() -> None:
    count, classes = 20_000, 5
    result = noisy(count, Noise(NoiseKind.LABEL, 1.0), classes=classes)
    _, labels = training_set(count, classes)
    table = (labels * classes + result.labels).bincount(minlength=classes**2).reshape(classes, classes)
    expected = count / classes / (classes - 1)
    off_diagonal = table[~torch.eye(classes, dtype=torch.bool)]
    assert table.diagonal().eq(0).all()
    # Chi-square with 15 degrees of freedom exceeds 45 once in 10,000 times; the draw is fixed, so never here.
    assert ((off_diagonal - expected) ** 2 / expected).sum() < 45


@given(level=st.floats(0, 1), classes=st.integers(2, 12), seed=st.integers(0, 2**32))
def test_asymmetric_flips_lead_from_every_class_to_the_next(level: float, classes: int, seed: int) -> None:
    _, labels = training_set(120, classes)
    result = noisy(120, Noise(NoiseKind.ASYMMETRIC, level), seed, classes)
    assert torch.equal(result.labels[result.flipped], (labels[result.flipped] + 1) % classes)


def test_asymmetric_flips_hit_every_class_alike() -> None:
    _, labels = training_set(20_000)
    result = noisy(20_000, Noise(NoiseKind.ASYMMETRIC, 0.4))
    shares = labels[result.flipped].bincount() / labels.bincount()
    assert shares == pytest.approx([0.4] * 5, abs=0.03)


@pytest.mark.parametrize("kind", LABEL_NOISE)
def test_labels_of_a_single_class_cannot_be_flipped(kind: NoiseKind) -> None:
    with pytest.raises(InputError, match="two or more classes"):
        noisy(4, Noise(kind, 0.5), classes=1)


@pytest.mark.parametrize("kind", INSTANCE_NOISE)
@given(count=st.integers(1, 40), level=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_only_the_share_of_images_is_damaged(kind: NoiseKind, count: int, level: float, seed: int) -> None:
    images, labels = training_set(count)
    result = noisy(count, Noise(kind, level), seed)
    assert torch.equal(result.labels, labels)
    assert not result.flipped.any()
    assert result.perturbed.sum() == round(level * count)
    changed = (result.images != images).flatten(1).any(1)
    assert torch.equal(changed, result.perturbed)
    assert result.images.dtype == torch.uint8


def test_salt_and_pepper_blends_nine_tenths_of_the_pixels_half_way() -> None:
    # Grey 100 is neither black nor white, so every touched pixel shows: half way to 0 or to 255.
    images = torch.full((50, 3, 40, 40), 100, dtype=torch.uint8)
    noise = Noise(NoiseKind.SALT_AND_PEPPER, 0.5)
    result = corrupt(images, torch.arange(50) % 2, 2, noise, torch.Generator().manual_seed(0))
    damaged = result.images[result.perturbed]
    assert set(damaged.unique().tolist()) == {50, 100, 178}
    assert (damaged != 100).float().mean() == pytest.approx(PERTURBED_PIXELS, abs=0.01)
    assert (damaged == 50).float().mean() == pytest.approx(PERTURBED_PIXELS / 2, abs=0.01)
    assert (damaged[:, :1] == damaged).all(), "a grain covers all channels"


def test_uniform_noise_replaces_the_image_by_every_byte_alike() -> None:
    images = torch.full((1, 1, 300, 300), 7, dtype=torch.uint8)
    noise = Noise(NoiseKind.UNIFORM, 1.0)
    result = corrupt(images, torch.zeros(1, dtype=torch.int64), 2, noise, torch.Generator().manual_seed(0))
    counts = result.images.flatten().bincount(minlength=256)
    assert counts.min() > 250
    assert counts.max() < 460


@pytest.mark.parametrize("kind", [NoiseKind.LABEL, *INSTANCE_NOISE])
def test_levels_zero_and_one_are_none_and_all(kind: NoiseKind) -> None:
    images, labels = training_set(20)
    nothing = noisy(20, Noise(kind, 0.0))
    assert torch.equal(nothing.images, images)
    assert torch.equal(nothing.labels, labels)
    everything = noisy(20, Noise(kind, 1.0))
    assert (everything.flipped | everything.perturbed).all()


@pytest.mark.parametrize("kind", list(NoiseKind))
def test_the_seed_decides_everything_and_the_arguments_stay(kind: NoiseKind) -> None:
    noise = Noise(kind, 0.0 if kind is NoiseKind.NONE else 0.5)
    images, labels = training_set(30)
    images_before, labels_before = images.clone(), labels.clone()
    first, again, other = (corrupt(images, labels, 5, noise, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(images, images_before)
    assert torch.equal(labels, labels_before)
    assert torch.equal(first.images, again.images)
    assert torch.equal(first.labels, again.labels)
    same = torch.equal(first.images, other.images) and torch.equal(first.labels, other.labels)
    assert same == (kind is NoiseKind.NONE)


@given(st.sampled_from([kind for kind in NoiseKind if kind is not NoiseKind.NONE]), st.integers(0, 1000))
def test_noise_is_read_as_it_is_written(kind: NoiseKind, thousandths: int) -> None:
    noise = Noise(kind, thousandths / 1000)
    assert Noise.parse(str(noise)) == noise


def test_none_needs_no_level() -> None:
    assert Noise.parse("none") == Noise.parse("none:0") == Noise()
    assert str(Noise()) == "none"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("labels:0.5", "did you mean 'label'"),
        ("", "there is no noise ''"),
        ("label", "has no level"),
        ("label:", "not a number"),
        ("label:much", "not a number"),
        ("label:1.5", "outside 0 to 1"),
        ("label:-0.1", "outside 0 to 1"),
        ("label:nan", "outside 0 to 1"),
        ("none:0.5", "cannot have level"),
    ],
)
def test_a_wrong_noise_is_one_sentence(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as raised:
        Noise.parse(text)
    assert "\n" not in str(raised.value)


def test_a_kind_of_noise_may_be_a_plain_name() -> None:
    assert Noise("label", 0.5) == Noise.parse("label:0.5")  # type: ignore[arg-type]
    assert str(Noise("none")) == "none"  # type: ignore[arg-type]
    with pytest.raises(InputError, match="did you mean 'label'"):
        Noise("lable", 0.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"noise is 0\.3; write its kind and its level"):
        Noise.parse(0.3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"noise level is '0.5'; give the share"):
        Noise("label", "0.5")  # type: ignore[arg-type]
