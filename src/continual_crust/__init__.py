"""Learn new classes one after another from partly wrong data, without forgetting the old ones."""
