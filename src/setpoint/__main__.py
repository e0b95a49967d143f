"""``python -m setpoint`` is the command line."""

from setpoint.cli import main

if __name__ == "__main__":
    main()
