"""`oncelog demo`: writers of every face, a bad network, kills, Spark pipelines, and an audit at the end."""
