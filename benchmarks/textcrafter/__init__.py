"""The four-set table of TextCrafter: utility, token inference, PII probes and reconstruction."""
