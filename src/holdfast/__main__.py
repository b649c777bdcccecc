"""`python -m holdfast`: the command, for who has the interpreter and not its script."""

import sys

if __name__ == "__main__":
    # Python looks for modules in the current folder first, which may have a random.py of its own.
    if not sys.flags.safe_path:
        sys.path.pop(0)

    from holdfast.cli import main

    main()
