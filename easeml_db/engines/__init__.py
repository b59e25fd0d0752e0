"""How a unit reaches its data, one module for each kind of segment."""
