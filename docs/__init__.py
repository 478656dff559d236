"""Documentation; `python -m docs.generate` writes the generated pages."""
