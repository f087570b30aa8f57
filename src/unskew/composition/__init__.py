"""What a method is made of: its parts, and the operations of a round that they make up."""
