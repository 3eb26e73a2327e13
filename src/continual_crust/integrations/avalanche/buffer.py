"""A memory of coresets as an Avalanche buffer."""

from __future__ import annotations

from typing import Any

from avalanche.benchmarks.utils import concat_datasets
from avalanche.training.storage_policy import BalancedExemplarsBuffer, ExemplarsBuffer

from continual_crust.errors import InputError
from continual_crust.integrations.avalanche.network import Group, positions_by_group
from continual_crust.integrations.avalanche.selection import CoresetSelection
from continual_crust.selection.coreset import checked_number
from continual_crust.selection.selectors import SelectorConfig


class _Kept(ExemplarsBuffer):  # type: ignore[misc]
    """The coreset of one class, the most valuable sample first."""

    def __init__(self, max_size: int, samples: Any) -> None:
        super().__init__(max_size)
        self.buffer = samples

    def resize(self, strategy: Any, new_size: int) -> None:
        self.max_size = new_size
        if len(self.buffer) > new_size:
            self.buffer = self.buffer.subset(list(range(new_size)))


class CoresetBuffer(BalancedExemplarsBuffer):  # type: ignore[misc]
    """A memory of coresets, for `ReplayPlugin(mem_size, storage_policy=…)` and whatever else takes a buffer.

    After each experience the coreset of every class in it is chosen with the network as it is then. Coresets of
    other classes are not chosen again: where new classes take a part of the memory, each gives up the samples it chose
    last. A class that comes again is chosen anew among the old coreset and the new samples. Classes of different
    tasks are different classes; ``buffer_groups`` has them by task and class.

    Parameters
    ----------
    max_size
        Samples in memory, all classes together.
    selector
        A name among ``SELECTORS`` or a whole configuration.
    adaptive_size
        Share `max_size` among the classes seen so far. Otherwise each class has its part of `total_num_classes` parts
        from the beginning, and no coreset ever shrinks.
    total_num_classes
        How many classes there will be; only without `adaptive_size`.
    seed
        For selectors that draw.
    """

    def __init__(
        self,
        max_size: int,
        selector: SelectorConfig | str = "crust",
        *,
        adaptive_size: bool = True,
        total_num_classes: int | None = None,
        seed: int = 0,
    ) -> None:
        max_size = checked_number(max_size, "hold {} samples in memory", 0)
        if adaptive_size != (total_num_classes is None) or (total_num_classes is not None and total_num_classes < 1):
            raise InputError(
                f"adaptive_size={adaptive_size} does not go with total_num_classes={total_num_classes}; give either "
                "adaptive_size=False with the number of classes to come, or neither."
            )
        super().__init__(max_size, adaptive_size, total_num_classes)
        self.selection = CoresetSelection(selector, seed=seed)

    @property
    def buffer(self) -> Any:
        """All coresets as one data set. Empty ones are left out, because Avalanche loses the labels behind them."""
        return concat_datasets([kept.buffer for kept in self.buffer_groups.values() if len(kept.buffer)])

    def post_adapt(self, agent: Any, exp: Any) -> None:
        """Choose the coresets of an experience's classes."""
        self.update_from_dataset(exp.dataset, agent)

    def update_from_dataset(self, new_data: Any, strategy: Any) -> None:
        """Choose the coresets of the classes in a data set and make room for them."""
        shares = self._shares(new_data)
        for group, samples in self._coresets(new_data, strategy, ordered=True).items():
            self.buffer_groups[group] = _Kept(shares[group], samples)
        for group, kept in self.buffer_groups.items():
            kept.resize(strategy, shares[group])

    def coresets_with(self, new_data: Any, strategy: Any) -> Any:
        """What the memory would be after :meth:`update_from_dataset`, before old classes give up their part."""
        old = {group: kept.buffer for group, kept in self.buffer_groups.items()}
        merged = {**old, **self._coresets(new_data, strategy, ordered=False)}
        return concat_datasets([samples for samples in merged.values() if len(samples)])

    def _coresets(self, new_data: Any, strategy: Any, ordered: bool) -> dict[Group, Any]:
        shares = self._shares(new_data)
        chosen = {}
        for group, positions in positions_by_group(new_data).items():
            samples = new_data.subset(positions)
            if group in self.buffer_groups and len(self.buffer_groups[group].buffer):
                samples = self.buffer_groups[group].buffer.concat(samples)
            chosen[group] = samples.subset(self.selection.coreset(strategy, samples, shares[group], ordered=ordered))
        return chosen

    def _shares(self, new_data: Any) -> dict[Group, int]:
        """How many samples each class may have, once the new data has been seen."""
        groups = list(dict.fromkeys([*self.buffer_groups, *positions_by_group(new_data)]))
        if not self.adaptive_size and len(groups) > self.total_num_groups:
            raise InputError(
                f"{len(groups)} classes came, those of different tasks counted apart, and total_num_classes is "
                f"{self.total_num_groups}; give the number of all classes to come."
            )
        return dict(zip(groups, self.get_group_lengths(len(groups)), strict=True)) if groups else {}
