"""The command line. Modules import heavy things late, so that a command starts as fast as it is small."""
