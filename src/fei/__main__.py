"""``python -m fei`` is the command ``fei``."""

from fei.cli import main

if __name__ == "__main__":
    main()
