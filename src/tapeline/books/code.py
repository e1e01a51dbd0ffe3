"""What the steps that made some books say: kept beside the books, under its own hash."""

from __future__ import annotations

import hashlib
import json
import linecache
from typing import Any

from tapeline.books.commit import Commit
from tapeline.books.layout import Layout
from tapeline.plan import Plan
from tapeline.plan.description import Facts, describe
from tapeline.store.files import is_there, make_folder, read_json, replace_json


def store_code(layout: Layout, plan: Plan) -> str:
    """Keep a description of the steps, and return the name that commits rows call it by."""
    linecache.checkcache()  # the file may have been edited since it was last read
    described = describe(plan)
    text = json.dumps(described, sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = layout.code(name)
    if not is_there(path):
        make_folder(path.parent)
        replace_json(path, described)
    return name


def described_code(layout: Layout, commit: Commit) -> dict[str, Facts]:
    """What the steps said that made a batch; nothing if these books do not tell."""
    if not commit.code:
        return {}
    try:
        found: dict[str, Any] = read_json(layout.code(commit.code))
    except (OSError, ValueError):
        return {}
    return found
