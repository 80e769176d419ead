"""``python -m thermocline``: the same as the command ``thermocline``."""

from __future__ import annotations

from thermocline.cli import main

main()
