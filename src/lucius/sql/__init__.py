"""The one way into an SQL database: transactions as scripts, run by SQLite or PostgreSQL.

A script is a generator that yields statements and receives rows: it holds no connection and does no I/O, so the same
script runs on SQLite's connection and on an asyncpg one, and scripts of the ledger and the bus join into one
transaction with `yield from`. Statements are written in PostgreSQL's dialect; `dialect.py` turns them into SQLite's.
"""
