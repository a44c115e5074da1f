"""Networks that learnt attacks train: perceptrons under a seed, and which device they run on."""
