"""DeepSeek-GRM / SPCT (Liu et al., 2025): judges that say a principle and grades before their verdict."""
