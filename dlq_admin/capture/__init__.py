"""Capture of what died: the broker's dead letter topics and our own quarantine, with evidence."""
