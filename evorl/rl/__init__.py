"""How one policy learns."""
