"""Commands about other machines, and what commands for these need."""
