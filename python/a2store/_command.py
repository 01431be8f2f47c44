"""The commands ``a2store`` and ``a2pack``, as the wheel installs them."""

import itertools
import signal
import sys

from ._a2store import _run_command


def main() -> int:
    """Run the command with this process's arguments and return its exit status."""
    arguments = sys.argv[1:]
    # Options of all subcommands may come before the subcommand.
    before = list(itertools.takewhile(("-q", "--quiet").__contains__, arguments))
    if arguments[len(before) : len(before) + 1] == ["critic"]:
        from .critic.__main__ import main as critic

        # From here on, Ctrl-C raises `KeyboardInterrupt`, so that completed work is kept.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return critic([*arguments[len(before) + 1 :], *before[:1]], program="a2store critic")
    return run("a2store")


def pack() -> int:
    """Run the command ``a2pack`` with this process's arguments and return its exit status."""
    return run("a2pack")


def run(name: str) -> int:
    """Run the command of this name and return its exit status."""
    # No code here needs Python's own handler, and without it Ctrl-C ends the command at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _run_command([name, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
