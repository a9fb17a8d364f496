"""`python -m workbench` is the `workbench` command."""

import sys

from workbench.cli.commands import main

sys.exit(main())
