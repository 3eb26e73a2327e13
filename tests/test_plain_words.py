"""What people write instead of the objects that strategies and streams are made with."""

from __future__ import annotations

import numpy as np
import pytest

from continual_crust.data import Dataset, Noise, Stream
from continual_crust.errors import InputError, unknown_name
from continual_crust.models import build_model
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.strategies import ContinualCrust, DarkExperienceReplay, Training
from continual_crust.strategies.der import DerOptions


def test_selectors_options_and_noise_may_be_words(few_digits: Dataset) -> None:
    network = build_model("simple_cnn", few_digits.image_shape, few_digits.classes)
    assert ContinualCrust(network, selector="herding").selector == SelectorConfig("herding")
    assert DarkExperienceReplay(network, options={"alpha": 0.3}).options.alpha == 0.3
    plain, parsed = (
        Stream(few_digits, noise, 3)[0].samples.labels for noise in ("label:0.4", Noise.parse("label:0.4"))
    )
    assert plain.tolist() == parsed.tolist()


def test_what_is_neither_is_refused_at_once(few_digits: Dataset) -> None:
    network = build_model("simple_cnn", few_digits.image_shape, few_digits.classes)
    with pytest.raises(InputError, match="selector 'herd'"):
        ContinualCrust(network, selector="herd")
    with pytest.raises(InputError, match="der option 'alfa'"):
        DarkExperienceReplay(network, options={"alfa": 1})
    with pytest.raises(InputError, match="options are a DerOptions; give 'crust' a"):
        ContinualCrust(network, options=DerOptions())


def test_numbers_of_numpy_become_pythons() -> None:
    training = Training(np.int64(3), np.int32(2), learning_rate=np.float32(0.5))
    assert (training.phase1_epochs, training.phase2_epochs, training.learning_rate) == (3, 2, 0.5)
    assert type(training.phase1_epochs) is int
    with pytest.raises(InputError, match="give a whole number"):
        Training(np.float64(2.5))


def test_a_name_where_there_is_none_at_all() -> None:
    assert (
        str(unknown_name("field", "alpha", [])) == "there is no field 'alpha', as there is none at all; leave it out."
    )
