"""Consumer groups of the classic protocol: who is a member, which generation holds, who gets what."""
