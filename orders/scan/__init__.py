"""The scanner's jobs, one a file."""
