"""Training of TextCrafter: PII classifier, policy network, reward, policy gradient. What it applies is in `mechanisms`."""
