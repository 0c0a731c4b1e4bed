"""Worlds: everything that hands out decisions."""
