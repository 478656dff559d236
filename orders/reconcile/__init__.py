"""The reconciler: differences between the stores are found, explained, repaired or ticketed."""
