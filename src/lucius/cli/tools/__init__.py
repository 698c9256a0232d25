"""`lucius new`, `contract` and `load`: tools for service authors and testers."""
