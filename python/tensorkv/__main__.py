"""``python -m tensorkv`` is the command ``tkv``."""

from ._cli import main

main()
