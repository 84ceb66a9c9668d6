"""The HTTP face's sockets: connections with their requests in line, reads that wait, health and metrics."""
