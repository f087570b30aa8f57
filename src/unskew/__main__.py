"""``python -m unskew`` is the command line too."""

from unskew.cli import main

main()
