"""What the console's pages read: frozen records, bounded rows, a constant number of statements."""
