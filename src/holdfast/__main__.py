"""`python -m holdfast`: the command, for who has the interpreter and not its script."""

from holdfast.cli import main

if __name__ == "__main__":
    main()
