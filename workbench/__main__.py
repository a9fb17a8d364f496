"""`python -m workbench` is the `workbench` command."""

import sys

from workbench.cli.program import main

sys.exit(main())
