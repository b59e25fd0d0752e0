"""Commands for whoever runs the server: private servers, coordinator, slots, segments, backups."""
