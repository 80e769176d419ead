"""Imports of all that the server's processes run: they are forks of a process that did this and nothing else.

So a process that died is back in a moment, and all share the memory of what is imported. Nothing here may
start a thread, or open a connection, when it is imported.
"""

from __future__ import annotations

import atexit
import gc

import uvicorn  # noqa: F401
import uvloop  # noqa: F401

import thermocline.serving.cold.ahead
import thermocline.serving.http.app
import thermocline.serving.http.protocol
import thermocline.serving.jobs.runner
import thermocline.serving.process.listening
import thermocline.serving.tail.tailers  # noqa: F401

# Forks share what nobody writes to, and looking for garbage writes to all that it looks at.
gc.collect()
gc.freeze()
atexit.register(gc.unfreeze)  # modules in C look for what is left at the end; forks end without this
