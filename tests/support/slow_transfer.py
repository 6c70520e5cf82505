"""A transfer slow enough to be interrupted: ``slow_transfer.py URL FOLDER``."""

import sys
import time

from vmselect.probe.transfer import Storage, probe_transfer


class Slow(Storage):
    def upload(self, content, *parts, stopped=lambda: False):
        super().upload(content, *parts, stopped=stopped)
        for _ in range(100):
            if stopped():
                return
            time.sleep(0.1)


probe_transfer(sys.argv[1], sys.argv[2], megabytes=4, files=4, streams=2, open_storage=Slow)
