"""The tables of Kafka's APIs, by family."""
