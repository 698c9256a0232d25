from lucius.ledgers.sql.ledger import SqlLedger

__all__ = ["SqlLedger"]
