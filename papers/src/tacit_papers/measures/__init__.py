"""What cells are measured with."""
