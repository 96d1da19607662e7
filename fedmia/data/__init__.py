"""Where images come from: one data source a file, each giving uint8 images and labels."""
