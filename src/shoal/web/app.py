"""The application: routers, errors and the description of the API."""

from __future__ import annotations

from fastapi import FastAPI

from shoal.errors import ShoalError
from shoal.version import __version__
from shoal.web.problem import Problem, on_problem, on_shoal_error
from shoal.web.room import Room


def build(room: Room) -> FastAPI:
    made = FastAPI(
        title="shoal", version=__version__, docs_url=None, redoc_url=None, openapi_url="/openapi.json"
    )
    made.state.room = room
    made.add_exception_handler(Problem, on_problem)
    made.add_exception_handler(ShoalError, on_shoal_error)
    return made
