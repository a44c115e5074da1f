"""TextCrafter's four sets: utility, token inference, PII probes and reconstruction behind each defence."""
