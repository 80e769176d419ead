"""`python -m thermocline.jvm [java | GROUP...]` finds Java and fetches jars, ahead of the demo and the tests.

With `java` it stops after finding Java; with groups of the lock it fetches these. Otherwise what is large or
seldom wanted is left out: it is fetched by the first that needs it. Ends with 0 when all is there, else with
the exit code of the error.
"""

from __future__ import annotations

import sys
from functools import partial

from thermocline.errors import ThermoclineError
from thermocline.jvm.jars import jars_of, locked_jars
from thermocline.jvm.java import find_java

_LATER = ("trino", "s3", "rest-server")


def main(arguments: list[str]) -> int:
    """Prints a line per step; gives the exit code."""
    say = partial(print, flush=True)
    try:
        java = find_java()
        say(java)
        if arguments != ["java"]:
            groups = arguments or [group for group in locked_jars() if not group.startswith(_LATER)]
            jars = [jar for group in groups for jar in jars_of(group, java=java, report=say)]
            say(f"{len(jars)} jars are as locked")
    except ThermoclineError as error:
        say(f"Error [{error.code}]: {error.what}\n  Next    {error.next}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
