"""The coordinator: its loop, the parts of the loop, and the ports through which it reaches the world."""
