"""Protobuf records: a message each, by the schema of its writer.

`reader` takes columns out of messages; `fitting` says which types of fields a column takes, and what makes
its value of theirs; `json_values` makes what a ``json`` column has. The rule stands in
docs/architecture/records.md, "The record rule (Protobuf)".
"""

from __future__ import annotations

from thermocline.rules.decode.protobuf.reader import PROTOBUF

__all__ = ["PROTOBUF"]
