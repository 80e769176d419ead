"""Clients that are left behind with a question unanswered."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

from thermocline.kafka.admin import admin_client

NOBODY = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}

LEFT_BEHIND = """
import gc
import threading

from confluent_kafka import TopicCollection
from thermocline.kafka import admin as kafka_admin
from thermocline.kafka.admin import admin_client

class Owner:
    def __init__(self):
        self.itself = self
        self.client = admin_client(self, {"bootstrap.servers": "127.0.0.1:9", "log_level": 0})

gc.disable()
answered = threading.Event()

def collect(future):
    gc.collect()
    answered.set()

owner = Owner()
owner.client.describe_topics(TopicCollection(["any"]), request_timeout=0.5)["any"].add_done_callback(collect)
del owner
assert answered.wait(60), "its client was destroyed before the answer came"
print("lives on")
"""


class Owner:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self
        self.client = admin_client(self, NOBODY)


def test_a_collection_while_a_client_answers_does_not_destroy_it() -> None:
    """Method: in a process of its own, which librdkafka would end, garbage is collected in the answer."""
    done = subprocess.run(
        [sys.executable, "-c", LEFT_BEHIND], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "lives on\n"), done.stderr


def test_a_client_that_is_left_behind_goes_with_the_next_one_that_is_asked_for() -> None:
    gc.collect()  # what other tests left behind goes with the first one asked for
    kept = Owner()
    left = Owner()
    client = weakref.ref(left.client)
    del left
    gc.collect()
    assert client() is not None
    kept.client = admin_client(kept, NOBODY)
    assert client() is None
