"""A study: many runs, and the name of each."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from continual_crust.data import Noise, NoiseKind
from continual_crust.data.noise import BLEND, PERTURBED_PIXELS
from continual_crust.errors import InputError
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.strategies import Strategy, strategy_named
from continual_crust.strategies.training import Training
from continual_crust.studies.config import RunConfig
from continual_crust.studies.defaults import defaults_for

REVISION = 3
"""Raised whenever the same configuration would come to another result than before, by more than rounding, so that old
results are not mixed in."""
METHOD_REVISIONS: dict[str, int] = {"sift": 3, "sift_oracle": 1}
"""The same for one method alone, so that results of all others remain: ``{"sift": 1}`` after its first change."""

TRAINING_FIELDS = {field.name for field in fields(Training)} - {"memory_per_class"}
SELECTOR_FIELDS = {field.name for field in fields(SelectorConfig)}
SETTINGS_READ: dict[str, set[str]] = {"random": set(), "reservoir": set(), "herding": set(), "crust": {"rule", "space"}}
"""By selector, those of its settings that it reads; a selector that is not named reads all."""
LATER_SETTINGS = {"shift": 0.0, "mirror": False}
"""Settings of the training that were added later, with the values that mean training without them. With these values
they are no part of a run's id, so that earlier runs keep theirs."""
RUN_FIELDS = {"model", "first_classes", "classes_per_experience", "image_size", "crop", "pretrained"}


@dataclass(frozen=True)
class Variant:
    """A method with what is changed about it."""

    method: str
    selector: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``SelectorConfig``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The method's own hyper-parameters."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``Training``, for this method alone."""


@dataclass(frozen=True)
class Study:
    """Data sets x methods x noise levels x memory sizes x seeds."""

    id: str
    """Its name, also of its folder."""
    title: str
    """What it shows, in a line."""
    datasets: tuple[str, ...]
    variants: tuple[Variant, ...]
    noise: NoiseKind
    levels: tuple[float, ...]
    seeds: tuple[int, ...]
    memory: tuple[int, ...] = ()
    """Samples kept for each class; the data set's default if none is given."""
    table: str | None = None
    """Id of the paper's table it reproduces."""
    show: str | None = None
    """``samples`` makes it a study without runs: a picture of each data set's images."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the training or the run that differ from the defaults, for all methods."""

    def runs(self) -> Iterator[RunConfig]:
        """Every run of the study, seed by seed, so that a half-finished study has whole columns.

        A method that keeps no memory is run with the first size only. Where two variants come to the same
        configuration, perhaps for one data set only, they share a run.
        """
        sizes: tuple[int | None, ...] = self.memory or (None,)
        known: set[str] = set()
        for seed, dataset, level, size, variant in itertools.product(
            self.seeds, self.datasets, self.levels, sizes, self.variants
        ):
            if size != sizes[0] and not strategy_named(variant.method).remembers:
                continue
            config = self._run(dataset, variant, level, size, seed)
            if (run := run_id(config)) not in known:
                known.add(run)
                yield config

    def _run(self, dataset: str, variant: Variant, level: float, size: int | None, seed: int) -> RunConfig:
        defaults = defaults_for(dataset, self.noise, variant.method)
        read = TRAINING_FIELDS - strategy_named(variant.method).unread_training()
        changes = {name: value for name, value in self.overrides.items() if name in read} | {**variant.training}
        training = replace(defaults.training, **changes)
        return RunConfig(
            **{"model": defaults.model, **run_fields(self.overrides)},
            dataset=dataset,
            method=variant.method,
            noise=Noise(self.noise, level) if self.noise is not NoiseKind.NONE else Noise(),
            seed=seed,
            training=training if size is None else replace(training, memory_per_class=size),
            selector=replace(strategy_named(variant.method).default_selector, **variant.selector),
            options={**defaults.options, **variant.options},
        )


def run_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values that are fields of the run itself, not of its training."""
    return {name: value for name, value in given.items() if name in RUN_FIELDS}


def check_settings_read(method: type[Strategy], selection: Mapping[str, Any]) -> None:
    """Refuse settings of a selector that nobody would read: who gives one expects it to matter."""
    if not selection:
        return
    if not method.remembers:
        raise InputError(f"method '{method.name}' keeps no memory that a selector could choose; leave it out.")
    selector = str(selection.get("name", method.default_selector.name))
    unread = sorted(set(selection) - settings_read(selector))
    if unread:
        raise InputError(
            f"the selector '{selector}' does not read {unread[0]}; leave it out or choose another selector."
        )


def settings_read(selector: str) -> set[str]:
    """The fields of ``SelectorConfig`` that matter to a selector, its name among them."""
    return {"name"} | SETTINGS_READ.get(selector, SELECTOR_FIELDS)


def revision_of(method: str) -> str:
    """Which state of the program a method's results are of, for example ``2``, or ``2.1`` if it has one of its own."""
    own = METHOD_REVISIONS.get(method)
    return f"{REVISION}" if own is None else f"{REVISION}.{own}"


def run_id(config: RunConfig, revision: str | None = None) -> str:
    """A name for a run: readable, and different whenever anything that determines the run is different.

    Settings that the run's selector does not read are left out, so that finding better ones for one method changes no
    run of another. `revision` is that of an earlier result; by default the present one.
    """
    used = settings_read(config.selector.name)
    plain = config.as_dict()
    training = plain["training"].items()
    everything = {
        **plain,
        "training": {name: value for name, value in training if (name, value) not in LATER_SETTINGS.items()},
        "selector": {name: value for name, value in plain["selector"].items() if name in used},
        "revision": revision or revision_of(config.method),
        "salt_and_pepper": [PERTURBED_PIXELS, BLEND],
    }
    digest = hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:10]
    noise = str(config.noise).replace(":", "-")
    return f"{config.dataset}-{config.method}-{noise}-k{config.training.memory_per_class}-s{config.seed}-{digest}"
