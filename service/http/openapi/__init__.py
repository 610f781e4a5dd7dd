"""The API's description of itself, OpenAPI 3.1: made from what reads the requests and from the table of errors."""
