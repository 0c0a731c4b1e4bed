"""How a population evolves."""
