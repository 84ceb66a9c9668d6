"""Kill a real engine on a real disk again and again, and audit what is left: nothing lost, doubled, torn or refused."""
