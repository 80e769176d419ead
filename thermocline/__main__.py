"""``python -m thermocline``: the same as the command ``thermocline``."""

from __future__ import annotations

from thermocline.process.safe_path import leave_current_folder

leave_current_folder()

from thermocline.cli import main  # noqa: E402  (it imports packages of other names)

main()
