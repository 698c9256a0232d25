from lucius.ledgers.tables.layouts import LAYOUTS
from lucius.ledgers.tables.ledger import TablesLedger

__all__ = ["LAYOUTS", "TablesLedger"]
