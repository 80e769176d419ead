"""``thermocline apply``: make the tables as the configuration says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from thermocline.cli.init_asked import is_asking
from thermocline.cli.output import counted, error_document, say, show
from thermocline.cli.publishing import publish_once
from thermocline.cli.session import AsJson, session_of
from thermocline.cli.table import alteration_costs
from thermocline.errors import ExitCode, NotConfirmed, ThermoclineError
from thermocline.text.typed import again

if TYPE_CHECKING:
    from thermocline.ingest.table.apply import Step
    from thermocline.settings import Settings

_WORDS = {
    "create": "is created",
    "alter": "is altered",
    "nothing": "is as the file says",
    "by hand": "is left as it is; by hand",
    "stopped": "can't be made now",
}


def apply(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]...", help="Table names. Default: every configured table."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan without doing it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    as_json: AsJson = False,
) -> int:
    """Create and alter tables as the configuration says.

    Shows the plan first, does exactly that, and nothing if everything is as the file says. Never drops: a
    table or column that the file doesn't mention stays. What `table alter` refuses is named, with the
    reasons, and its table is left as it is, while the others are made; the exit code is 20 then.
    """
    settings = session_of(context).settings()
    wanted = list(dict.fromkeys(names or settings.tables))
    for name in wanted:
        settings.table(name)
    from thermocline.ingest.table.apply import planned_steps
    from thermocline.process.clock import SystemClock

    steps = planned_steps(settings, wanted, SystemClock())
    to_do = [step for step in steps if step.is_done]
    costs = {step.table: alteration_costs(settings, step.agreed) for step in to_do if step.agreed is not None}
    if not as_json:
        show(None, Text("\n".join(_plan_lines(steps, costs))), as_json=False)
    # safety: apply-yes, apply-dry-run
    is_agreed = bool(to_do) and not dry_run and _confirmed(to_do, yes)
    done = [_done(settings, step) for step in to_do] if is_agreed else []
    document = {
        "dry_run": dry_run,
        "tables": [
            _document(step, {one.step.table: one for one in done}) | {"costs": costs.get(step.table, ())}
            for step in steps
        ],
    }
    show(document, Text(_last_line(steps, done, dry_run)), as_json)
    return _exit_code(steps, done, is_declined=bool(to_do) and not dry_run and not is_agreed)


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of a step."""

    step: Step
    error: ThermoclineError | None = None


def _confirmed(to_do: Sequence[Step], yes: bool) -> bool:
    if yes:
        return True
    if not is_asking(yes):
        problem = f"{counted(len(to_do), 'table')} would be made, and this was not confirmed"
        raise NotConfirmed(problem=problem, command=again("--yes"))
    return typer.confirm(f"Make {counted(len(to_do), 'table')}?", default=True, err=True)


def _done(settings: Settings, step: Step) -> _Done:
    """Does a step; what stops it stops no other."""
    from thermocline.ingest.table.apply import do_step
    from thermocline.ingest.table.sample import warnings_of
    from thermocline.process.clock import SystemClock

    try:
        do_step(settings, step, SystemClock(), say)
    except ThermoclineError as error:
        return _Done(step, error)
    if step.action == "alter":
        publish_once(settings, step.table)
    say(f"{step.table}: {'created' if step.action == 'create' else 'altered'}")
    if step.action == "create":
        for warning in warnings_of(settings, settings.table(step.table).definition(step.table)):
            say(warning)
    return _Done(step)


def _plan_lines(steps: Sequence[Step], costs: Mapping[str, Sequence[str]]) -> list[str]:
    lines = []
    for step in steps:
        lines.append(f"{step.table}: {_WORDS[step.action]}")
        lines += [f"  {change}" for change in step.changes]
        lines += [f"  cost: {one}" for one in costs.get(step.table, ())]
        if step.error is not None:
            lines += _error_lines(step.error, is_listed=bool(step.changes))
    return lines


def _error_lines(error: ThermoclineError, is_listed: bool = False) -> list[str]:
    document = error_document(error)
    what = [] if is_listed else [f"  [{error.code}] {error.what}"]
    return [*what, *(f"  next: {line}" for line in str(document["next"]).splitlines())]


def _document(step: Step, done: dict[str, _Done]) -> dict[str, Any]:
    came = done.get(step.table)
    error = came.error if came is not None and came.error is not None else step.error
    return {
        "table": step.table,
        "identifier": step.identifier,
        "action": step.action,
        "changes": list(step.changes),
        "done": came is not None and came.error is None,
        "error": None if error is None else error_document(error),
    }


def _last_line(steps: Sequence[Step], done: Sequence[_Done], dry_run: bool) -> str:
    failed = [one for one in done if one.error is not None]
    lines = []
    for one in failed:
        assert one.error is not None
        lines += [f"{one.step.table}: not done", *_error_lines(one.error)]
    left = sum(step.error is not None for step in steps)
    to_do = sum(step.is_done for step in steps)
    cannot = f", {left:,} that can't be made" if left else ""
    if not to_do and not left:
        lines.append("nothing to do: everything is as the file says")
    elif dry_run or not done:
        lines.append(f"nothing was done: {counted(to_do, 'table')} to make{cannot}")
    else:
        lines.append(f"{_counts(done)}{cannot}")
    return "\n".join(lines)


def _counts(done: Sequence[_Done]) -> str:
    """How many tables were created and altered."""
    actions = [one.step.action for one in done if one.error is None]
    counts = ((actions.count("create"), "created"), (actions.count("alter"), "altered"))
    said = [f"{counted(count, 'table')} {what}" for count, what in counts if count]
    return ", ".join(said) or "nothing was done"


def _exit_code(steps: Sequence[Step], done: Sequence[_Done], is_declined: bool) -> int:
    """The gravest of what stopped a table; else that something is left to a person, or was declined."""
    stopped = [one.error.exit_code for one in done if one.error is not None]
    stopped += [step.error.exit_code for step in steps if step.error is not None and step.action == "stopped"]
    if stopped:
        return max(stopped)
    if any(step.action == "by hand" for step in steps):  # safety: apply-exit-code
        return ExitCode.PARTLY_DONE
    return ExitCode.NOTHING_TO_DO if is_declined else ExitCode.DONE
