"""The web page behind ``fei serve``: plain functions and classes, with a thin layer of Starlette over them."""
