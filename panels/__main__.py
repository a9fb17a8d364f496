"""`python -m panels` starts the page, as `python app.py` does."""

import sys

from workbench.core.errors import Unavailable
from workbench.core.packages import PAGE, PAGE_INSTALL, check_packages


def start() -> None:
    """Starts the page; if its packages are not installed, ends with one line that says how to get them."""
    try:
        check_packages("the page needs", PAGE, PAGE_INSTALL)
    except Unavailable as error:
        sys.stderr.write(f"workbench: {error}\n")
        sys.exit(error.exit_status)
    from panels.serving import main

    main()


if __name__ == "__main__":
    start()
