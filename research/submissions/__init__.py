"""Methods that others submitted to the experiment ``benchmark``, one file each; ``isotropic.py`` is the template."""
