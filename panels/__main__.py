"""`python -m panels` starts the page, as `python app.py` does."""

from panels.serving import main

if __name__ == "__main__":
    main()
