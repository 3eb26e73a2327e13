"""The same stream, network, initial weights and budget in Avalanche 0.6: the other side of the cross-check.

Where Avalanche's defaults would change the budget they are set aside, and nothing else is:

- Memory is k samples of each class from beginning to end. `mem_size` is a total that Avalanche shares out among what it
  has seen so far, so buffers here hold k x classes with `adaptive_size=False`: the share of a class is then k always.
  `Replay` and `DER` offer no argument for that; the buffer is handed to replay's plugin and put in DER's place.
  iCaRL has `fixed_memory=False`: k for each class.
- Adam starts afresh in each experience (`fresh_optimizer=False` for Avalanche's default, which carries its moments on).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from continual_crust.data import Dataset, Noise, Stream
from continual_crust.evaluation import average_accuracy, forgetting
from continual_crust.models import build_model
from continual_crust.randomness import seed_for
from continual_crust.strategies import Training
from continual_crust.strategies.network import Network
from continual_crust.torchvision_remedy import import_torchvision

import_torchvision()

from avalanche.benchmarks import CLScenario
from avalanche.benchmarks.scenarios.deprecated.generic_benchmark_creation import (
    create_multi_dataset_generic_benchmark,
)
from avalanche.benchmarks.utils import _make_taskaware_tensor_classification_dataset as tensor_dataset
from avalanche.benchmarks.utils import concat_datasets
from avalanche.training.plugins import EWCPlugin, ReplayPlugin, SupervisedPlugin
from avalanche.training.storage_policy import ClassBalancedBuffer
from avalanche.training.supervised import DER, Cumulative, ICaRL, JointTraining, Naive
from avalanche.training.supervised.der import ClassBalancedBufferWithLogits
from avalanche.training.templates import SupervisedTemplate


@dataclass(frozen=True)
class AvalancheRun:
    """What one run of Avalanche was worth, measured as our own runs are."""

    accuracy_matrix: list[list[float]]
    """Row i, column j: accuracy on experience j after experience i. Joint training has one row only."""
    accuracy: float
    forgetting: float | None
    seconds: float
    """Of training, without evaluation."""
    model: nn.Module
    """The network at the end."""


@dataclass(frozen=True)
class Budget:
    """What a strategy may use."""

    model: nn.Module
    training: Training
    classes: int
    fused: bool = True
    """Whether Adam takes its steps in one operation, as ours does, and not as PyTorch does unless told."""

    @property
    def memory(self) -> int:
        """Samples in memory at the end, all classes together."""
        return self.training.memory_per_class * self.classes

    def arguments(self, with_model: bool = True) -> dict[str, object]:
        """What all of Avalanche's strategies are given alike."""
        adam = torch.optim.Adam(
            self.model.parameters(),
            lr=self.training.learning_rate,
            weight_decay=self.training.weight_decay,
            fused=self.fused or None,
        )
        return {
            **({"model": self.model} if with_model else {}),
            "optimizer": adam,
            "train_mb_size": self.training.batch_size,
            "eval_mb_size": self.training.batch_size,
            "train_epochs": self.training.epochs,
            "device": torch.device("cpu"),
            "evaluator": None,
        }

    def buffer(self, kind: type[ClassBalancedBuffer] = ClassBalancedBuffer) -> ClassBalancedBuffer:
        """A buffer in which every class has its fixed share."""
        return kind(self.memory, adaptive_size=False, total_num_classes=self.classes)


class ConcatenatingReplay(SupervisedPlugin):
    """Replay as one data set of new and remembered samples, each visited once an epoch. Not part of Avalanche."""

    def __init__(self, buffer: ClassBalancedBuffer) -> None:
        super().__init__()
        self.storage_policy = buffer

    def after_train_dataset_adaptation(self, strategy: SupervisedTemplate, **_: object) -> None:
        if len(self.storage_policy.buffer):
            strategy.adapted_dataset = concat_datasets([strategy.adapted_dataset, self.storage_policy.buffer])

    def after_training_exp(self, strategy: SupervisedTemplate, **_: object) -> None:
        self.storage_policy.post_adapt(strategy, strategy.experience)


def naive(budget: Budget) -> SupervisedTemplate:
    return Naive(criterion=nn.CrossEntropyLoss(), **budget.arguments())


def joint(budget: Budget) -> SupervisedTemplate:
    return JointTraining(criterion=nn.CrossEntropyLoss(), **budget.arguments())


def cumulative(budget: Budget) -> SupervisedTemplate:
    return Cumulative(criterion=nn.CrossEntropyLoss(), **budget.arguments())


def replay(budget: Budget, mixing: str = "equal") -> SupervisedTemplate:
    """Avalanche's `Replay` is `Naive` with this plugin; only there can the buffer be chosen."""
    return Naive(criterion=nn.CrossEntropyLoss(), plugins=[_replay_plugin(budget, mixing)], **budget.arguments())


def replay_ewc(budget: Budget, mixing: str = "equal", ewc_lambda: float = 1.0, **ewc: object) -> SupervisedTemplate:
    """`ewc` may hold `mode` ("separate" or "online") and `decay_factor`."""
    plugins = [_replay_plugin(budget, mixing), EWCPlugin(ewc_lambda, **ewc)]
    return Naive(criterion=nn.CrossEntropyLoss(), plugins=plugins, **budget.arguments())


def der(budget: Budget, alpha: float = 0.1, beta: float = 0.5) -> SupervisedTemplate:
    """Avalanche's defaults: with `beta` above 0 this is DER++, and DER with `beta=0`."""
    strategy = DER(alpha=alpha, beta=beta, mem_size=budget.memory, **budget.arguments())
    strategy.storage_policy = budget.buffer(ClassBalancedBufferWithLogits)
    return strategy


def icarl(budget: Budget) -> SupervisedTemplate:
    return ICaRL(
        feature_extractor=budget.model.body,
        classifier=budget.model.head,
        memory_size=budget.training.memory_per_class,
        fixed_memory=False,
        buffer_transform=None,
        **budget.arguments(with_model=False),
    )


METHODS: dict[str, Callable[..., SupervisedTemplate]] = {
    method.__name__: method for method in (naive, joint, cumulative, replay, replay_ewc, der, icarl)
}


def run_avalanche(
    method: str,
    dataset: Dataset,
    noise: Noise,
    seed: int,
    training: Training,
    *,
    model: str = "simple_cnn",
    fresh_optimizer: bool = True,
    plugins_after: Sequence[SupervisedPlugin] = (),
    **options: object,
) -> AvalancheRun:
    """Learn our stream with Avalanche, on the CPU, and evaluate after every experience as we do.

    Parameters
    ----------
    method
        One of ``METHODS``; `options` are the method's own.
    dataset, noise, seed, training, model
        As for our own runs. Order, noise and initial weights are the same for the same seed; batches are not.
    fresh_optimizer
        Forget Adam's moments before each experience, as we do and Avalanche does only on request.
    plugins_after
        Called after those that make up the method; Avalanche's own argument calls them before.
    """
    stream = Stream(dataset, noise, seed)
    network = build_model(model, dataset.image_shape, dataset.classes, seed=seed_for(seed, "model"))
    normalized = normalization(stream, network)
    # Recorded and dropped: missing loggers, and names that will change, of which Avalanche insists on warning.
    with warnings.catch_warnings(record=True), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seed, "avalanche"))
        strategy = METHODS[method](Budget(network, training, dataset.classes), **options)
        strategy.plugins.extend(plugins_after)
        experiences = avalanche_stream(stream, normalized).train_stream
        tests = [stream.test(index) for index in range(len(stream))]
        seconds, matrix = 0.0, []
        for part in [experiences] if method == "joint" else experiences:
            start = time.perf_counter()
            strategy.train(part, reset_optimizer_state=fresh_optimizer)
            seconds += time.perf_counter() - start
            matrix.append([_accuracy(strategy.model, normalized(images), labels) for images, labels in tests])
    return AvalancheRun(matrix, average_accuracy(matrix), forgetting(matrix), seconds, strategy.model)


def _replay_plugin(budget: Budget, mixing: str) -> SupervisedPlugin:
    if mixing == "concatenate":
        return ConcatenatingReplay(budget.buffer())
    return ReplayPlugin(budget.memory, storage_policy=budget.buffer())


def normalization(stream: Stream, model: nn.Module) -> Callable[[Tensor], Tensor]:
    """What our strategies do to bytes before the network sees them."""
    network = Network(model, torch.device("cpu"))
    network.measure_normalization(stream[0].samples.images)
    return lambda images: (images.float() - network.mean) / network.std


def avalanche_stream(stream: Stream, normalized: Callable[[Tensor], Tensor]) -> CLScenario:
    """Our experiences as Avalanche's: same classes, samples, order and labels.

    Avalanche's own `nc_benchmark` would sort an experience's samples by class, and EWC visits them unshuffled.
    """
    benchmark = create_multi_dataset_generic_benchmark(
        [tensor_dataset(normalized(part.samples.images), part.samples.labels) for part in stream],
        [tensor_dataset(normalized(images), labels) for images, labels in map(stream.test, range(len(stream)))],
    )
    # What iCaRL asks of a benchmark and only `nc_benchmark` knows.
    benchmark.n_classes_per_exp = [len(group) for group in stream.groups]
    benchmark.classes_order = [label for group in stream.groups for label in group]
    return benchmark


@torch.no_grad()
def _accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """In evaluation mode, where iCaRL's model answers with its nearest class mean."""
    model.eval()
    return float((model(inputs).argmax(dim=1) == labels).double().mean())
