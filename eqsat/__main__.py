"""`python -m eqsat` is the command `eqsat`."""

from eqsat.cli import main

main()
