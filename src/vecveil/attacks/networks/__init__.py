"""Networks that learnt attacks train: perceptrons under a seed."""
