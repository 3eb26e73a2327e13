"""Learn new classes one after another from partly wrong data, without forgetting the old ones."""

__version__ = "0.1.0"
