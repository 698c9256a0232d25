"""Registries: where protocols, tenants and global settings come from."""
