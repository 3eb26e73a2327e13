"""Images come in here: sources, noise, and the stream of experiences made of them."""

from continual_crust.data.noise import Noise, NoiseKind
from continual_crust.data.samples import Dataset, Samples, Truth
from continual_crust.data.sources import SOURCES, Source, check_dataset, load_dataset
from continual_crust.data.stream import Experience, Stream

__all__ = [
    "SOURCES",
    "Dataset",
    "Experience",
    "Noise",
    "NoiseKind",
    "Samples",
    "Source",
    "Stream",
    "Truth",
    "check_dataset",
    "load_dataset",
]
