"""``python -m thespis`` is the same as ``thespis``."""

from thespis.cli.main import main

main()
