"""The probes that are callbacks of ``model.fit``. Keras itself is imported only where a fit runs."""
