"""The jobs (`books`, `repositories`, `schedule`), and how the sources that they name are opened."""
