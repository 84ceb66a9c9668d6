"""Kill a real server under writers that speak HTTP, also through a network that loses answers, and audit the log."""
