"""What all commands share: arguments, connections, output, interrupts."""
