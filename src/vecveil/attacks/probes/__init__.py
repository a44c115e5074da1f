"""Probes: does the text behind a released vector hold the concept at all?"""
