"""What the stand-ins for the program share: they are started as it is, look ready, and end when they are told to.

The kernel around them says nothing but where its own addresses are: what is not for those is lost without a word.
"""

import os
import signal
import subprocess
import sys
import tomllib


def stand_in(work=lambda config: signal.sigwait({signal.SIGTERM})):
    """Does this work in place of the program, until it is stopped."""
    if sys.argv[1] != "run":
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    # Without a route there would be an error.
    subprocess.run(["ip", "-6", "route", "add", "blackhole", "default"], check=True)
    with open(sys.argv[sys.argv.index("--config") + 1], "rb") as file:
        config = tomllib.load(file)
    # Reports that the program is ready.
    os.close(os.open(config["station"]["socket"], os.O_CREAT))
    work(config)
