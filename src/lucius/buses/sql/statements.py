"""Every statement of the bus, in PostgreSQL's dialect (see `lucius.sql.dialect`).

A message is one row per subscription that wanted it. QUEUED rows are deliverable from `visible_at` on: a lock is
nothing but a `visible_at` that lies ahead. SETTLED rows are kept, emptied, until the duplicate window has passed.
"""

from __future__ import annotations

DECLARE = (
    "INSERT INTO subscriptions (topic, name, filter, delivery_max, ttl_seconds) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (topic, name) DO UPDATE SET filter = excluded.filter, delivery_max = excluded.delivery_max,"
    " ttl_seconds = excluded.ttl_seconds"
)
SUBSCRIPTIONS = "SELECT subscription_id, topic, name, filter, delivery_max, ttl_seconds FROM subscriptions"
SUBSCRIPTIONS_OF = f"{SUBSCRIPTIONS} WHERE topic = ANY($1::text[])"

PUBLISH = (
    "INSERT INTO messages (subscription_id, message_id, state, body, properties, enqueued_at, visible_at,"
    " delivery_count, expires_at) VALUES ($1, $2, 'QUEUED', $3, $4, $5, $6, 0, $7)"
    " ON CONFLICT (message_id, subscription_id) DO NOTHING"
)

SEEN = "SELECT message_id, subscription_id FROM messages WHERE message_id = ANY($1::text[])"
QUEUED = (
    "SELECT subscription_id, message_id, properties, enqueued_at, visible_at, delivery_count, expires_at FROM messages"
    " WHERE state = 'QUEUED' ORDER BY subscription_id, visible_at, message_seq"
)
BODIES = (
    "SELECT message_id, subscription_id, body FROM messages WHERE message_id = ANY($1::text[]) AND body IS NOT NULL"
)
COUNT_DELIVERY = "UPDATE messages SET delivery_count = $1 WHERE message_id = $2 AND subscription_id = $3"
READY_ACROSS = (
    "SELECT m.message_seq, m.message_id, m.body, m.properties, m.delivery_count, m.subscription_id"
    " FROM unnest($1::bigint[]) WITH ORDINALITY AS s (id, place) CROSS JOIN LATERAL ("
    "SELECT message_seq, message_id, body, properties, delivery_count, subscription_id FROM messages"
    " WHERE subscription_id = s.id AND state = 'QUEUED' AND visible_at <= $2"
    " ORDER BY visible_at, message_seq LIMIT $3 FOR UPDATE SKIP LOCKED) m"
)
IS_ANY_READY = (
    "SELECT subscription_id FROM messages WHERE subscription_id = ANY($1::bigint[]) AND state = 'QUEUED'"
    " AND visible_at <= $2 LIMIT 1"
)
LOCK = "UPDATE messages SET visible_at = $2, delivery_count = delivery_count + 1 WHERE message_seq = $1"
UNLOCK = (
    "UPDATE messages SET visible_at = CASE WHEN $3::bigint = 0 THEN enqueued_at ELSE $3::bigint END"
    " WHERE message_id = $1 AND subscription_id = $2 AND state = 'QUEUED'"
)
RENEW = (
    "UPDATE messages SET visible_at = $4 WHERE message_id = $1 AND subscription_id = $2 AND state = 'QUEUED'"
    " AND delivery_count > 0 AND visible_at > $3 RETURNING message_id"
)
SETTLE = (
    "UPDATE messages SET state = 'SETTLED', body = NULL, properties = '', ended_at = $3"
    " WHERE message_id = $1 AND subscription_id = $2 AND state = 'QUEUED'"
)
SETTLE_ALL = (
    "UPDATE messages SET state = 'SETTLED', body = NULL, properties = '', ended_at = $3"
    " WHERE message_id = ANY($1::text[]) AND subscription_id = $2 AND state = 'QUEUED'"
)
BURY = (
    "UPDATE messages SET state = 'DEAD', ended_at = $3, reason = $4"
    " WHERE message_id = $1 AND subscription_id = $2 AND state = 'QUEUED'"
)
BURY_COUNTED = (
    "UPDATE messages SET state = 'DEAD', ended_at = $3, reason = $4, delivery_count = $5"
    " WHERE message_id = $1 AND subscription_id = $2 AND state = 'QUEUED'"
)
BURY_BY_SEQ = (
    "UPDATE messages SET state = 'DEAD', ended_at = $2, reason = $3 WHERE message_seq = $1 AND state = 'QUEUED'"
)
WAITING = (
    "SELECT message_id FROM messages WHERE message_id = $1 AND subscription_id = $2 AND state = 'QUEUED'"
    " AND (visible_at <= $3 OR delivery_count = 0)"
)

DEPTHS = (
    "SELECT subscription_id, SUM(CASE WHEN visible_at <= $1 THEN 1 ELSE 0 END), COUNT(*), MIN(enqueued_at)"
    " FROM messages WHERE state = 'QUEUED' GROUP BY subscription_id"
)
DEAD_COUNTS = "SELECT subscription_id, COUNT(*) FROM messages WHERE state = 'DEAD' GROUP BY subscription_id"
DEAD_LETTERS = (
    "SELECT subscription_id, message_id, properties, delivery_count, reason, ended_at FROM messages"
    " WHERE state = 'DEAD' ORDER BY ended_at DESC LIMIT $1"
)

EXPIRED = "SELECT message_seq FROM messages WHERE state = 'QUEUED' AND expires_at <= $1 LIMIT $2"
SETTLED_PAGE = "SELECT message_seq, state, ended_at FROM messages WHERE message_seq > $1 ORDER BY message_seq LIMIT $2"
FORGET = "DELETE FROM messages WHERE message_seq = $1"
