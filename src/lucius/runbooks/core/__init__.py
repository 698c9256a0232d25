"""The pure part of runbooks: state machines, messages and definitions. No I/O, no SQL, no clock."""
