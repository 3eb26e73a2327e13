"""Replay from coresets as an Avalanche plugin."""

from __future__ import annotations

import warnings
from inspect import signature
from typing import Any

from avalanche.training import JointTraining
from avalanche.training.plugins import ReplayPlugin, SupervisedPlugin
from avalanche.training.storage_policy import ExperienceBalancedBuffer

from continual_crust.errors import InputError, unknown_name
from continual_crust.integrations.avalanche.buffer import CoresetBuffer
from continual_crust.selection.coreset import checked_number
from continual_crust.selection.selectors import SelectorConfig

_MARK = "_coreset_replay_plugin"
"""Attribute of a strategy that refers to its plugin. Checkpoints carry both, into another strategy object."""

_REPLAY_ARGUMENTS = set(signature(ReplayPlugin).parameters).difference(("mem_size", "storage_policy"))
"""What may be handed on to Avalanche's plugin; the rest is given here."""


class CoresetReplayPlugin(SupervisedPlugin):  # type: ignore[misc]
    """Replay from coresets, and on request Continual CRUST's second phase.

    Beside the plugin of Avalanche's `Replay` it only puts its :class:`CoresetBuffer` in the place of that plugin's
    buffer. In a strategy without replay, such as `Naive`, it replays by itself in the same way.

    Parameters
    ----------
    mem_size
        Samples in memory, all classes together; need not be given beside `Replay`, which has a `mem_size` itself.
    selector
        A name among ``SELECTORS`` or a whole configuration.
    coreset_epochs
        The last so many of the strategy's `train_epochs` see no new samples but their coreset, which is chosen anew
        before each, together with the memory. With 0 the new samples are trained on to the end, wrong ones included.
        The optimizer's state is forgotten where this phase begins: moments gathered on wrong labels spoil it.
    adaptive_size, total_num_classes
        As in :class:`CoresetBuffer`.
    seed
        For selectors that draw.
    **replay
        Further arguments of Avalanche's `ReplayPlugin` for a strategy without one, such as `batch_size_mem`.
    """

    def __init__(
        self,
        mem_size: int | None = None,
        selector: SelectorConfig | str = "crust",
        *,
        coreset_epochs: int = 0,
        adaptive_size: bool = True,
        total_num_classes: int | None = None,
        seed: int = 0,
        **replay: Any,
    ) -> None:
        super().__init__()
        for name in replay:
            if name not in _REPLAY_ARGUMENTS:
                raise unknown_name("argument of CoresetReplayPlugin or ReplayPlugin", name, _REPLAY_ARGUMENTS)
        self.coreset_epochs = checked_number(coreset_epochs, "have coreset_epochs of {}", 0)
        self.storage_policy = CoresetBuffer(
            0 if mem_size is None else mem_size,
            selector,
            adaptive_size=adaptive_size,
            total_num_classes=total_num_classes,
            seed=seed,
        )
        self._mem_size = mem_size
        self._replay_arguments = replay
        self._own_replay: Any = None
        self._settled = False

    def before_training(self, strategy: Any, **_: Any) -> None:
        """Find out, once, who replays."""
        if self._settled:
            # One from an older checkpoint has marked no strategy yet.
            if vars(self).get("_marked") and getattr(strategy, _MARK, None) is not self:
                raise InputError("this CoresetReplayPlugin belongs to another strategy; make a new one for each.")
            self._mark(strategy)
            return
        if isinstance(strategy, JointTraining):
            raise InputError(
                "JointTraining has all experiences at once, and a memory of one of them would spoil it; leave out "
                "CoresetReplayPlugin."
            )
        if sum(isinstance(plugin, CoresetReplayPlugin) for plugin in strategy.plugins) > 1:
            raise InputError("the strategy has more than one CoresetReplayPlugin; give it one.")
        others = [plugin for plugin in strategy.plugins if isinstance(plugin, ReplayPlugin)]
        if others:
            self._serve(others)
        elif self._mem_size is None:
            raise InputError("the size of the memory is not known; give CoresetReplayPlugin a mem_size.")
        else:
            self._own_replay = ReplayPlugin(
                self._mem_size, storage_policy=self.storage_policy, **self._replay_arguments
            )
        self._settled = True
        self._mark(strategy)

    def _mark(self, strategy: Any) -> None:
        """Belong to a strategy, in a way that its checkpoints keep."""
        setattr(strategy, _MARK, self)
        self._marked = True

    def _serve(self, others: list[Any]) -> None:
        """Become the memory of a replay plugin that has none of its own yet."""
        other = others[0]
        fresh = isinstance(other.storage_policy, ExperienceBalancedBuffer) and not len(other.storage_policy.buffer)
        if len(others) > 1 or not fresh:
            raise InputError(
                "the strategy has a replay memory already; leave out CoresetReplayPlugin, and give ReplayPlugin a "
                "CoresetBuffer as its storage_policy instead."
            )
        if self._mem_size not in (None, other.mem_size):
            raise InputError(
                f"CoresetReplayPlugin has a mem_size of {self._mem_size} and the strategy's replay one of "
                f"{other.mem_size}; give only one of them."
            )
        if self._replay_arguments:
            raise InputError(
                f"{', '.join(self._replay_arguments)} cannot be set here, because the strategy has a replay plugin; "
                "use a strategy without one, such as Naive."
            )
        self.storage_policy.max_size = other.mem_size
        other.storage_policy = self.storage_policy

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Mix the memory into training."""
        if self.coreset_epochs and self.coreset_epochs >= strategy.train_epochs:
            raise InputError(
                f"coreset_epochs is {self.coreset_epochs} and the strategy's train_epochs {strategy.train_epochs}; the "
                "last ones are those on coresets, so give train_epochs more, for a network that can tell what to keep."
            )
        if self._own_replay is not None:
            self._own_replay.before_training_exp(strategy, **kwargs)

    def before_training_epoch(self, strategy: Any, **kwargs: Any) -> None:
        """In the last epochs, train on coresets alone."""
        first = max(0, strategy.train_epochs - self.coreset_epochs)
        epoch = strategy.clock.train_exp_epochs
        if epoch < first:
            return
        coresets = self.storage_policy.coresets_with(strategy.experience.dataset, strategy)
        if not len(coresets):
            return
        if epoch == first:
            strategy.optimizer.state.clear()
        strategy.adapted_dataset = coresets.train()
        strategy.make_train_dataloader(**kwargs)

    def after_training_exp(self, strategy: Any, **_: Any) -> None:
        """Choose what to remember of the experience."""
        done = strategy.clock.train_exp_epochs
        if self.coreset_epochs and done <= strategy.train_epochs - self.coreset_epochs:
            warnings.warn(
                f"training stopped after {done} of {strategy.train_epochs} epochs, before the {self.coreset_epochs} on "
                "coresets began; leave out early stopping, or give it more patience.",
                stacklevel=2,
            )
        if self._own_replay is not None:
            self.storage_policy.post_adapt(strategy, strategy.experience)
