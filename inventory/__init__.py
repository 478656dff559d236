"""Sales, their gate in Redis, final stock and its ledger. No messaging here."""
