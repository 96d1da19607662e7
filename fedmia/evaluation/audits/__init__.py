"""What an audit is made of: images in their roles, views of the encoder, shadows."""
