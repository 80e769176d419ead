"""What the server's processes run, imported once: they are forks of a process that did this and nothing else.

So a process that died is back in a moment, and all share the memory of what is imported. Nothing here may
start a thread, or open a connection, when it is imported.
"""

from __future__ import annotations

import atexit
import gc

import uvicorn  # noqa: F401
import uvloop  # noqa: F401

import serving.app
import serving.cold.ahead
import serving.jobs.runner
import serving.protocol
import serving.tailers
import serving.trino.process  # noqa: F401

# Forks share what nobody writes to, and looking for garbage writes to all that it looks at.
gc.collect()
gc.freeze()
atexit.register(gc.unfreeze)  # modules in C look for what is left at the end; forks end without this
