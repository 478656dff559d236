"""`rebuild_gate`: makes a sale's gate anew from PostgreSQL, after a loss or on request."""
