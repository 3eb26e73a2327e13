"""This package inside other people's trainers. Each module needs the library it is named after."""
