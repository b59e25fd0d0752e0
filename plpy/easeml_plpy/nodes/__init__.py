"""What runs on other servers for a control server that holds the records."""
