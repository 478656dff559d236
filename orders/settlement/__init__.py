"""The end of a sale: its report, SETTLED, and the clean-up of its gate."""
