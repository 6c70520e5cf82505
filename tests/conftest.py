"""What all tests need of the process that runs them."""

from __future__ import annotations

import signal

# A shell ignores SIGINT in what it runs in the background, and children inherit that: nobody would hear Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
