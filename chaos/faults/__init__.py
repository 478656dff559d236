"""How each fault of the catalogue is injected and taken back."""
