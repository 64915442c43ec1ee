"""The training loop: play, score, estimate advantages, update, publish, evaluate, save."""
