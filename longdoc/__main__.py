"""`python -m longdoc`: the command line where the script is not on the path."""

from longdoc.cli.main import main

main()
