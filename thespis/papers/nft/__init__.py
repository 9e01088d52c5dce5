"""NFT: bridging supervised learning and reinforcement learning in math reasoning."""
