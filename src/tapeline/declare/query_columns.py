"""What a query in update or complete mode adds to its rows, so that the latest one counts."""

from __future__ import annotations

from tapeline.declare.schema import Field

NUMBER = Field("_query_batch", "bigint")  # grows with each batch, also under a new query id
DELETES = Field("_query_deletes", "boolean")  # the key is no longer in the complete result
