"""Ctrl-C while the commands ``a2store`` and ``a2pack`` import the package: they end silently, with status 130."""

import os
import signal
import sys


def _is_command() -> bool:
    words = sys.orig_argv
    as_module = any(words[k : k + 2] == ["-m", "a2store"] for k in range(len(words)))
    return as_module or any(os.path.basename(word) in ("a2store", "a2pack") for word in sys.argv[:1])


# Shells start background jobs with SIGINT ignored, and it stays ignored.
if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
