"""What cells are measured by."""
