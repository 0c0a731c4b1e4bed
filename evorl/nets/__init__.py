"""Networks and distributions built from a Spec."""
