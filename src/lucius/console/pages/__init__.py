"""The pages of the console, a module for each."""
