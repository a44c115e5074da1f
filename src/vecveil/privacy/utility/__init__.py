"""What a release keeps: utility tasks and their figures, each with an interval."""
