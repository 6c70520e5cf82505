"""Probes for trainers of other libraries that have callbacks: Lightning's and Hugging Face's, both above torch.

Neither library is imported here: a probe has the methods that they call, and is handed their objects.
"""
