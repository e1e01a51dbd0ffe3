"""What is different between the steps of a file and those that made some books."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from difflib import ndiff
from typing import Any

from tapeline.declare import Step
from tapeline.plan.description import Facts, describe
from tapeline.plan.graph import Plan

ADDED, RETIRED, CHANGED, REBUILT = "added", "retired", "changed", "rebuilt"
PERHAPS, UNKNOWN = "perhaps changed", "unknown"
DIFFERENCES = 12  # lines that are shown of one step


@dataclass(frozen=True)
class StepChange:
    """A step that is not as it was when the books were made."""

    name: str
    kind: str
    change: str  # added, retired, changed, rebuilt, perhaps changed, unknown
    why: tuple[str, ...] = ()
    built_from: str = ""  # where its records come from when it is built
    records: int = 0  # to read for that
    seconds: float = 0.0  # that this takes, about
    bytes: int = 0  # that it needs on disk, about

    def facts(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Known:
    """What the books say of the code that made them."""

    steps: Collection[str]
    described: Mapping[str, Facts] = field(default_factory=dict)  # nothing in older books
    differs: Collection[str] | None = None  # steps with another fingerprint; None: not looked at


def compare(plan: Plan, known: Known) -> list[StepChange]:
    """The steps that were added, retired or changed, and those that are built again with them."""
    new = describe(plan)
    found: dict[str, StepChange] = {}
    for step in (*plan.tables, *plan.summaries):
        own = _own_change(step.name, new[step.name], known)
        if own is None and step.stream in found:
            above = found[step.stream]
            certain = above.change in (ADDED, CHANGED, REBUILT)
            change = REBUILT if certain else PERHAPS
            own = StepChange(step.name, new[step.name]["kind"], change, (f"reads {above.name}",))
        if own is not None:
            found[step.name] = own
    listed = [_with_origin(plan, found, one) for one in found.values()]
    for name in sorted(set(known.steps) - set(new)):
        kind = known.described.get(name, {}).get("kind", "step")
        listed.append(StepChange(name, kind, RETIRED))
    return listed


def _own_change(name: str, new: Facts, known: Known) -> StepChange | None:
    """Whether a step itself is another one, whatever it reads."""
    kind, old = new["kind"], known.described.get(name)
    why = tuple(differences(old, new)) if old else ()
    if name not in known.steps:
        return StepChange(name, kind, ADDED)
    if known.differs is not None:
        return StepChange(name, kind, CHANGED, why) if name in known.differs else None
    if old is None:
        return StepChange(name, kind, UNKNOWN, ("these books do not say what made them",))
    return StepChange(name, kind, PERHAPS, why) if why else None


def _with_origin(plan: Plan, found: Mapping[str, StepChange], one: StepChange) -> StepChange:
    steps: dict[str, Step] = {**plan.pipeline.tables, **plan.pipeline.summaries}
    stream = steps[one.name].stream
    origin = f"the tape of {stream}" if stream in plan.pipeline.sources else f"table {stream}"
    again = " (also built)" if stream in found else ""
    return StepChange(one.name, one.kind, one.change, one.why, f"{origin}{again}")


def differences(old: Facts, new: Facts) -> Iterator[str]:
    """What a user edited in a step, a line each."""
    if old["reads"] != new["reads"]:
        yield f"reads {', '.join(old['reads'])} -> {', '.join(new['reads'])}"
    for part in ("options", "input"):
        yield from _values(old.get(part) or {}, new.get(part) or {})
    yield from _lines(old["source"], new["source"])
    before, after = old["uses"], new["uses"]
    for name in sorted({*before, *after}):
        if before.get(name) == after.get(name):
            continue
        if "\n" in before.get(name, "") + after.get(name, ""):
            yield f"{name}():"
            yield from _lines(before.get(name, ""), after.get(name, ""))
        else:
            yield f"{name}: {before.get(name, 'not used')} -> {after.get(name, 'not used')}"


def _values(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if isinstance(before, list) or isinstance(after, list):
            gone = [one for one in before or () if one not in (after or ())]
            came = [one for one in after or () if one not in (before or ())]
            yield from (f"{name}: - {_short(one)}" for one in gone)
            yield from (f"{name}: + {_short(one)}" for one in came)
            if not gone and not came:
                yield f"{name}: another order"
        else:
            yield f"{name}: {_short(before)} -> {_short(after)}"


def _short(value: Any) -> str:
    words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return words if len(words) <= 200 else words[:197] + "..."


def _lines(old: str, new: str) -> Iterator[str]:
    """The lines that differ between two sources, without the others."""
    if old == new:
        return
    changed = [one for one in ndiff(old.splitlines(), new.splitlines()) if one[:1] in "+-"]
    yield from changed[:DIFFERENCES]
    if len(changed) > DIFFERENCES:
        yield f"... and {len(changed) - DIFFERENCES} more lines"
