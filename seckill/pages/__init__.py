"""Plain pages for people: start, activity, log-in, preflight. No logic lives here."""
