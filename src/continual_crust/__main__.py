"""``python -m continual_crust`` is the same as ``continual-crust``."""

from continual_crust.cli import main

if __name__ == "__main__":
    main()
