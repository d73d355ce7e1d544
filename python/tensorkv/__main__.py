"""``python -m tensorkv`` is the command ``tkv``."""

from ._cli import main

if __name__ == "__main__":
    main()
