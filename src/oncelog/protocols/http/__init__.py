"""The HTTP face: durable-streams, the X- producer dialect, commits, and everything an operator asks."""
