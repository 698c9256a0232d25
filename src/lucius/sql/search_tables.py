"""What jobs are found by besides lists: correlation ids, and the values of searchable fields of their payloads.

Both are written once, with the job. The correlation id is a column of `job_specs`, which is never updated, and not of
`job_states`: PostgreSQL would write a new entry in its index for most updates of a job.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lucius.sql.database import Fetch, Run, Script
from lucius.sql.migration import Moved

SEARCH_TABLES = (
    "ALTER TABLE job_specs ADD COLUMN correlation_id TEXT",
    "CREATE INDEX specs_by_correlation ON job_specs (correlation_id, job_id) WHERE correlation_id IS NOT NULL",
    """CREATE TABLE job_search_values (
        job_id TEXT NOT NULL, field TEXT NOT NULL, value TEXT NOT NULL, tenant_id TEXT NOT NULL,
        PRIMARY KEY (job_id, field, value)) /* clustered */""",
    "CREATE INDEX search_values ON job_search_values (field, value, job_id)",
    "CREATE INDEX search_values_by_tenant ON job_search_values (tenant_id, field, value, job_id)",
)
DROP_SEARCH_TABLES = (
    "DROP TABLE job_search_values",
    "DROP INDEX specs_by_correlation",
    "ALTER TABLE job_specs DROP COLUMN correlation_id",
)

JOBS_AT_ONCE = 1_000
CORRELATION_PLACE = 16
"""Where the correlation id is in the document of what was accepted; it is missing if it is the job's id."""
_TOTAL = "SELECT COUNT(*) FROM job_specs"
PAGE = "SELECT job_id, document FROM job_specs WHERE job_id > $1 ORDER BY job_id LIMIT $2"
FILL = "UPDATE job_specs SET correlation_id = $2 WHERE job_id = $1"
_decode = msgspec.json.Decoder(list[Any]).decode


class FillCorrelationIds:
    """Fills the column from the documents of jobs that were accepted before it was there."""

    def total(self) -> Script[int]:
        return int((yield Fetch(_TOTAL))[0][0])

    def step(self, position: str | None) -> Script[Moved]:
        page = yield Fetch(PAGE, [position or "", JOBS_AT_ONCE])
        found = [(row[0], _correlation_id(row[1])) for row in page]
        given = [row for row in found if row[1] is not None]
        if given:
            yield Run(FILL, given, in_one_statement=True)
        return Moved(page[-1][0] if len(page) == JOBS_AT_ONCE else None, len(page))

    def compare(self, position: str | None) -> Script[Moved]:
        """Nothing was moved: the documents stay as they are."""
        yield from ()
        return Moved(None, 0)


def _correlation_id(document: str) -> str | None:
    try:
        values = _decode(document)
    except msgspec.MsgspecError:
        return None  # The job cannot be read, so there is nothing to find it by.
    given = values[CORRELATION_PLACE] if len(values) > CORRELATION_PLACE else None
    return given if isinstance(given, str) else None
