"""Training of TextCrafter: PII classifier, policy network, reward, policy gradient.

What a trained policy applies to vectors is in `vecveil.mechanisms` and needs no torch.
"""
