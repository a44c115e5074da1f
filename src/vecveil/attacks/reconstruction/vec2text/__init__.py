"""Vec2Text: guess a text from its vector, then correct the guess by what its own vector says."""
