"""What people and machines see of the running system: the list of metrics, their exposition."""
