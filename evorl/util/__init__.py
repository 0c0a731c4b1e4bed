"""Small, self-contained helpers; none of them imports evorl."""
