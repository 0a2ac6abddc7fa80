"""Learn in two threads at once that another attempt owns the job. Usage: stopped_by_two.py REACHED, a file to touch.

The heartbeat's thread is held, where it has noted that and not yet acted, until the script's own thread stops the
heartbeat.
"""

import logging
import sys
import threading
from itertools import count
from pathlib import Path

from airflow_provider.spark import step
from airflow_provider.storage.heartbeat import Heartbeat

stops = threading.Event()
stop = Heartbeat.stop


class Holding(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if "is fenced" in record.getMessage():
            stops.wait(60)


def noted_stop(heartbeat: Heartbeat, state: str) -> None:
    stops.set()
    stop(heartbeat, state)


Heartbeat.stop = noted_stop  # type: ignore[method-assign]
logging.getLogger("airflow_provider.job.recording").addHandler(Holding())
Path(sys.argv[1]).touch()
for number in count():
    step(f"step {number}", lambda: None)
