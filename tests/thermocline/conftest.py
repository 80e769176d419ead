"""How property tests run: without deadlines, since a busy machine is no bug; a find says how to repeat it."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("thermocline", deadline=None, print_blob=True)
settings.load_profile("thermocline")
