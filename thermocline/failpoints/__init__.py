"""Failpoints: named places where this software fails on purpose, for tests. Free when off.

    failpoint("owner.check")                     a place between two steps: nothing happens here
    with failstep("data-file.write"):            a step that may fail before or after it was done
        ...
    time_ms + skew_ms("clock")                   a clock that may go wrong

`points` lists them all, with the error that a real failure there raises. `arming` reads what is armed, from
``THERMOCLINE_FAILPOINTS`` and from the file that ``THERMOCLINE_FAILPOINTS_FILE`` names. `firing` does it.
A test sees to it that each listed point stands in the code exactly once.
"""

from thermocline.failpoints.arming import FILE_VARIABLE, TEXT_VARIABLE, Fired, arm, disarm, fired
from thermocline.failpoints.firing import arm_from, failpoint, failstep, skew_ms
from thermocline.failpoints.point import Action, Failpoint, Form, Process
from thermocline.failpoints.points import POINTS, points_of

__all__ = [
    "FILE_VARIABLE",
    "POINTS",
    "TEXT_VARIABLE",
    "Action",
    "Failpoint",
    "Fired",
    "Form",
    "Process",
    "arm",
    "arm_from",
    "disarm",
    "failpoint",
    "failstep",
    "fired",
    "points_of",
    "skew_ms",
]
