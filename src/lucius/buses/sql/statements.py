"""Every statement of the bus, in PostgreSQL's dialect (see `lucius.sql.dialect`).

A message is one row per subscription that wanted it. QUEUED rows are deliverable from `visible_at` on: a lock is
nothing but a `visible_at` that lies ahead. A settled message is removed if its id cannot be published again; else its
row is kept as SETTLED, emptied, until the duplicate window has passed. DEAD rows are emptied too, unless their
subscription keeps bodies, and go with their job or after a set time.
"""

from __future__ import annotations

DECLARE = (
    "INSERT INTO subscriptions (topic, name, filter, delivery_max, ttl_seconds, keeps_dead_bodies)"
    " VALUES ($1, $2, $3, $4, $5, $6)"
    " ON CONFLICT (topic, name) DO UPDATE SET filter = excluded.filter, delivery_max = excluded.delivery_max,"
    " ttl_seconds = excluded.ttl_seconds, keeps_dead_bodies = excluded.keeps_dead_bodies"
)
SUBSCRIPTIONS = (
    "SELECT subscription_id, topic, name, filter, delivery_max, ttl_seconds, keeps_dead_bodies FROM subscriptions"
)
DEAD_ROWS = (
    "SELECT n_dead_tup, n_live_tup, COALESCE(last_analyze, last_autoanalyze) IS NULL FROM pg_stat_user_tables"
    " WHERE relid = 'messages'::regclass"
)
"""How many there are, and living ones, and whether the planner knows nothing about them yet."""
VACUUM = "VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE FALSE) messages"
"""Truncation would lock the whole table; who vacuums it already is not waited for."""
VACUUM_AND_ANALYZE = VACUUM.replace("(", "(ANALYZE, ", 1)
PING = "SELECT message_seq FROM messages LIMIT 1"
SUBSCRIPTIONS_OF = f"{SUBSCRIPTIONS} WHERE topic = ANY($1::text[])"

SUBSCRIPTIONS_ARE = (
    "SELECT COUNT(*) = cardinality($2::bigint[]) AND COUNT(g.id) = cardinality($2::bigint[]) FROM subscriptions s"
    " LEFT JOIN unnest($2::bigint[], $3::text[], $4::float8[]) AS g (id, filter, ttl_seconds)"
    " ON s.subscription_id = g.id AND s.filter = g.filter AND s.ttl_seconds = g.ttl_seconds"
    " WHERE s.topic = ANY($1::text[])"
)
"""Whether these are all subscriptions of these topics, with these filters and times."""

PUBLISH = (
    "INSERT INTO messages (subscription_id, message_id, state, body, properties, enqueued_at, visible_at,"
    " delivery_count, expires_at, is_unique) VALUES ($1, $2, 'QUEUED', $3, $4, $5, $6, 0, $7, $8)"
    " ON CONFLICT (message_id, subscription_id) DO NOTHING"
)

PUBLISH_BY_TENANT = PUBLISH.replace("is_unique)", "is_unique, tenant_id)").replace("$8)", "$8, $9)")
"""Only a database that several processes share has the column: a single owner keeps the order in memory."""

SEEN = "SELECT message_id, subscription_id FROM messages WHERE message_id = ANY($1::text[])"
QUEUED = (
    "SELECT subscription_id, message_id, properties, enqueued_at, visible_at, delivery_count, expires_at FROM messages"
    " WHERE state = 'QUEUED' ORDER BY subscription_id, visible_at, message_seq"
)
BODIES = (
    "SELECT message_id, subscription_id, body FROM messages WHERE message_id = ANY($1::text[]) AND body IS NOT NULL"
)
COUNT_DELIVERY = "UPDATE messages SET delivery_count = $1 WHERE message_id = $2 AND subscription_id = $3"
_NEXT_TENANT = (
    "SELECT tenant_id FROM messages WHERE subscription_id = s.id AND state = 'QUEUED' AND visible_at <= $2{}"
    " ORDER BY tenant_id LIMIT 1"
)
_AFTER = f"COALESCE(({_NEXT_TENANT.format(' AND tenant_id > {}')}), ({_NEXT_TENANT.format('')}))"
"""The tenant after this one that has a message; after the last comes the first."""
_READY_OF_TENANT = (
    "SELECT message_seq, message_id, body, properties, delivery_count, subscription_id, tenant_id FROM messages"
    " WHERE subscription_id = {} AND tenant_id = {} AND state = 'QUEUED' AND visible_at <= $2"
    " ORDER BY visible_at, message_seq LIMIT {} FOR UPDATE SKIP LOCKED"
)
READY_ACROSS = (
    "SELECT m.* FROM unnest($1::bigint[], $4::text[]) AS s (id, after) CROSS JOIN LATERAL ("
    f"WITH RECURSIVE turns (tenant_id, first, place) AS (SELECT a.next, a.next, 1::bigint"
    f" FROM (SELECT {_AFTER.format('s.after')} AS next) a WHERE a.next IS NOT NULL"
    f" UNION ALL SELECT n.next, t.first, t.place + 1 FROM turns t CROSS JOIN LATERAL"
    f" (SELECT {_AFTER.format('t.tenant_id')} AS next) n WHERE n.next <> t.first AND t.place < $3::bigint),"
    " share (size) AS (SELECT ($3::bigint + COUNT(*) - 1) / GREATEST(COUNT(*), 1) FROM turns)"
    " SELECT r.*, t.place, share.size FROM turns t CROSS JOIN share CROSS JOIN LATERAL ("
    f"{_READY_OF_TENANT.format('s.id', 't.tenant_id', 'share.size')}) r) m"
)
"""For each subscription an equal share of each tenant that has something, beginning with the tenant after the given
one: up to $3 tenants, and in all up to $3 messages or one of each tenant more."""
TAKE_ACROSS = (
    f"WITH ready AS MATERIALIZED ({READY_ACROSS}), taken AS ("
    "UPDATE messages SET visible_at = $5, delivery_count = messages.delivery_count + 1"
    " WHERE message_seq = ANY(ARRAY(SELECT message_seq FROM ready))"
    " AND (SELECT COUNT(*) <= $3::bigint AND MAX(delivery_count) < $6::bigint FROM ready) RETURNING message_seq)"
    " SELECT ready.*, taken.message_seq IS NOT NULL, set_config('synchronous_commit', 'off', true)"
    " FROM ready LEFT JOIN taken USING (message_seq)"
)
"""The same, and lock them until $5, if there are no more than $3 and none was delivered $6 times before. The last
columns: whether they are locked, and that nobody waits for the disk: a lock that is lost with the server's power only
means that its message is delivered again."""
MORE_OF_TENANTS = (
    "SELECT m.* FROM unnest($1::bigint[], $4::text[]) AS s (id, tenant_id) CROSS JOIN LATERAL ("
    f"{_READY_OF_TENANT.format('s.id', 's.tenant_id', '$3::bigint')}) m"
)
IS_ANY_READY = (
    "SELECT subscription_id FROM messages WHERE subscription_id = ANY($1::bigint[]) AND state = 'QUEUED'"
    " AND visible_at <= $2 LIMIT 1"
)
LOCK = "UPDATE messages SET visible_at = $2, delivery_count = delivery_count + 1 WHERE message_seq = $1"
_IS_QUEUED, _IS_DEAD = "state || '' = 'QUEUED'", "state || '' = 'DEAD'"
"""For statements that know the message's id. Written so that no index of queued or dead messages can be used for them:
PostgreSQL may have counted the messages when there were none, and would then prefer to look through all there are."""
UNLOCK = (
    "UPDATE messages SET visible_at = CASE WHEN $3::bigint = 0 THEN enqueued_at ELSE $3::bigint END"
    f" WHERE message_id = $1 AND subscription_id = $2 AND {_IS_QUEUED}"
)
RENEW = (
    f"UPDATE messages SET visible_at = $4 WHERE message_id = $1 AND subscription_id = $2 AND {_IS_QUEUED}"
    " AND delivery_count > 0 AND visible_at > $3 RETURNING message_id"
)
_OF_THESE = (  # Ids, and ids with their subscriptions: one message may be in several.
    f" WHERE message_id = ANY($1::text[]) AND message_id || ' ' || subscription_id = ANY($2::text[]) AND {_IS_QUEUED}"
)
SETTLE_UNIQUE = f"DELETE FROM messages{_OF_THESE} AND is_unique = 1"
SETTLE = (
    f"UPDATE messages SET state = 'SETTLED', body = NULL, properties = '', ended_at = $3{_OF_THESE} AND is_unique = 0"
)
WITHDRAW = (
    "UPDATE messages SET state = 'SETTLED', body = NULL, properties = '', ended_at = $3"
    f" WHERE message_id = $1 AND subscription_id = $2 AND {_IS_QUEUED} AND (visible_at <= $3 OR delivery_count = 0)"
    " RETURNING message_id"
)
BURY = (
    "UPDATE messages SET state = 'DEAD', ended_at = $3, reason = $4, body = CASE WHEN $5::bigint = 1 THEN body END"
    f" WHERE message_id = $1 AND subscription_id = $2 AND {_IS_QUEUED}"
)
BURY_COUNTED = (
    "UPDATE messages SET state = 'DEAD', ended_at = $3, reason = $4, body = CASE WHEN $5::bigint = 1 THEN body END,"
    f" delivery_count = $6 WHERE message_id = $1 AND subscription_id = $2 AND {_IS_QUEUED}"
)
BURY_BY_SEQ = (
    "UPDATE messages SET state = 'DEAD', ended_at = $2, reason = $3, body = CASE WHEN $4::bigint = 1 THEN body END"
    f" WHERE message_seq = $1 AND {_IS_QUEUED}"
)
SHORTEN_LOCKS = (
    "UPDATE messages SET visible_at = $2 WHERE subscription_id = ANY($1::bigint[]) AND state = 'QUEUED'"
    " AND visible_at > $3 AND delivery_count > 0"
)
SHOW_NEW = (
    "UPDATE messages SET visible_at = $2, enqueued_at = $2 WHERE subscription_id = ANY($1::bigint[])"
    " AND state = 'QUEUED' AND visible_at > $3 AND visible_at = enqueued_at AND delivery_count = 0"
)
WAITING = (
    f"SELECT message_id FROM messages WHERE message_id = $1 AND subscription_id = $2 AND {_IS_QUEUED}"
    " AND (visible_at <= $3 OR delivery_count = 0)"
)

DEPTHS = (
    "SELECT subscription_id, SUM(CASE WHEN visible_at <= $1 THEN 1 ELSE 0 END), COUNT(*), MIN(enqueued_at),"
    " SUM(CASE WHEN delivery_count > 1 THEN 1 ELSE 0 END)"
    " FROM messages WHERE state = 'QUEUED' GROUP BY subscription_id"
)
DEAD_COUNTS = "SELECT subscription_id, COUNT(*) FROM messages WHERE state = 'DEAD' GROUP BY subscription_id"
_DEAD_LETTERS = (
    "SELECT subscription_id, message_id, properties, delivery_count, reason, ended_at, body FROM messages"
    " WHERE state = 'DEAD'"
)
DEAD_LETTERS = f"{_DEAD_LETTERS} ORDER BY ended_at DESC LIMIT $1"
DEAD_LETTERS_OF = f"{_DEAD_LETTERS} AND subscription_id = ANY($2::bigint[]) ORDER BY ended_at DESC LIMIT $1"
SEND_AGAIN = (
    "UPDATE messages SET state = 'QUEUED', ended_at = NULL, reason = NULL, delivery_count = 0, enqueued_at = $3,"
    " visible_at = $3, expires_at = $4, body = COALESCE($5::bytea, body) WHERE message_id = $1 AND subscription_id = $2"
    f" AND {_IS_DEAD} AND COALESCE($5::bytea, body) IS NOT NULL RETURNING properties"
)

EXPIRED = (
    "SELECT m.message_seq, s.keeps_dead_bodies FROM messages m JOIN subscriptions s USING (subscription_id)"
    " WHERE m.state = 'QUEUED' AND m.expires_at <= $1 LIMIT $2"
)
OLD_DEAD = "SELECT message_seq FROM messages WHERE state = 'DEAD' AND ended_at < $1 LIMIT $2"
SETTLED_PAGE = "SELECT message_seq, state, ended_at FROM messages WHERE message_seq > $1 ORDER BY message_seq LIMIT $2"
FORGET = "DELETE FROM messages WHERE message_seq = $1"
