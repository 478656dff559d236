"""Measures this system: own load generator, calibration, scenarios (`bin/bench --help`)."""
