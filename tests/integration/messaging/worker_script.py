"""A worker process for the tests: `worker_script.py MODE`, settings from the environment."""

import os
import sys
import threading
import time

os.environ["DJANGO_SETTINGS_MODULE"] = "seckill.settings"

import django

django.setup()

from messaging.pulse import Pulse  # noqa: E402
from messaging.worker import Loop, StopSignal, leave, serve  # noqa: E402


def good(stop: StopSignal, pulse: Pulse) -> None:
    print("started", flush=True)
    while not stop.wait(0.05):
        pulse.touch()
    print("finished", flush=True)


def stubborn(stop: StopSignal, pulse: Pulse) -> None:
    print("started", flush=True)
    while True:
        pulse.touch()
        time.sleep(0.05)


def hanging(stop: StopSignal, pulse: Pulse) -> None:
    print("started", flush=True)
    threading.Event().wait()


def crashing(stop: StopSignal, pulse: Pulse) -> None:
    raise RuntimeError("a bug in the loop")


def ending(stop: StopSignal, pulse: Pulse) -> None:
    print("finished", flush=True)


LOOPS = {f.__name__: f for f in (good, stubborn, hanging, crashing, ending)}
names = sys.argv[1].split("+")
loops = [Loop(name=name, group=f"G_{name}", run=LOOPS[name]) for name in names]
leave(serve(role="test", loops=loops))
