"""The routes of a service: predictions, health, and a page about them."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from osculate.serving.bodies import CSV, INPUTS, JSON, ROWS, read_body, read_table
from osculate.serving.documentation import add_style, page
from osculate.serving.guard import LOG, App, Guard
from osculate.serving.refusals import Refused
from osculate.serving.settings import Access, Limits
from osculate.serving.work import Abandoned, Work

T = TypeVar("T")
#: Statuses other than 200, and when they are the answer.
REFUSALS = {
    400: "The header Host is not a name of this server.",
    401: "The bearer token is missing or wrong.",
    403: "A page of another site has sent the request.",
    408: "The body has not arrived in time.",
    413: "The body has too many bytes or rows.",
    415: "The body is neither JSON nor CSV, or compressed.",
    422: "The body is malformed, of another shape, or holds a number that is not finite, or has no finite prediction.",
    429: "Too many requests of one client are under way.",
    503: "Too many requests are under way.",
    504: "No answer was found in time.",
}
#: Routes that need no token, and others.
ROUTES = {
    "/health": True,
    "/model": False,
    "/predict": False,
    "/docs": False,
    "/docs.css": True,
    "/openapi.json": False,
}


class Model(ABC):
    """A model behind a service.

    Attributes:
        input_shape: Shape of one input.
        columns: Names of the columns of a table, with True for those of numbers; None for other inputs.
    """

    input_shape: tuple[int, ...]
    columns: Mapping[str, bool] | None = None

    @abstractmethod
    def facts(self) -> "Facts":
        """Facts about the model for clients."""

    @abstractmethod
    def answers(self, values: Any, ask: Callable[[], None]) -> list["Prediction"]:
        """A prediction for each input.

        Args:
            values: Inputs in the units of the data, as float64 (N, …), or columns of a table by name.
            ask: Function that raises an error if nobody waits any more; it is called now and then.
        """


class Refusal(BaseModel):
    """An answer other than 200."""

    error: str = Field(description="The reason and the way out, in a sentence.")


class Health(BaseModel):
    """The state of the server."""

    status: str = Field(description='"ok"')


class ColumnFacts(BaseModel):
    """A column of a table."""

    name: str = Field(description="The name")
    kind: str = Field(description='"number", "category" or "date"')
    categories: list[str] | None = Field(description="Words of a category in the training; null for other columns")


class Facts(BaseModel):
    """Facts about the model for clients."""

    kind: str = Field(description='"classification" or "regression"')
    posterior: str = Field(description="Kind of posterior")
    input_shape: list[int] = Field(description="Shape of one input of the network")
    columns: list[ColumnFacts] | None = Field(description="Columns of a table; null for other inputs")
    classes: list[str] | None = Field(description="Names of the classes, in the order of probabilities")
    outputs: list[str] | None = Field(description="Names of the real outputs, in the order of means")
    score: str = Field(description="Uncertainty by which inputs count as out of distribution, if there is one")
    threshold: float | None = Field(
        description="Quantile of 95 % of this score on held-out data of the run; null if one of the two is not there"
    )


class Prediction(BaseModel):
    """The prediction for one input: probabilities for classes, mean and standard deviations for real values."""

    label: str | None = Field(default=None, description="Name of the most probable class")
    probabilities: list[float] | None = Field(default=None, description="Probability of each class")
    entropy: float | None = Field(default=None, description="Entropy of the probabilities in nats")
    mutual_information: float | None = Field(
        default=None, description="Part of the entropy in nats that more data would remove; null for a single network"
    )
    mean: list[float] | None = Field(default=None, description="Mean of each output, in the units of the targets")
    standard_deviation: list[float] | None = Field(
        default=None, description="Standard deviation, observation noise included"
    )
    function_standard_deviation: list[float] | None = Field(
        default=None, description="Standard deviation without this noise; null for a single network"
    )
    out_of_distribution: bool | None = Field(
        description="True if the score is above the threshold; null without a threshold"
    )
    unknown_columns: list[str] | None = Field(
        default=None,
        description="Columns of a table whose value the training rows do not have: a category that is none of theirs, "
        "or a value that is missing where theirs are not",
    )


class Predictions(BaseModel):
    """The answer to a request."""

    classes: list[str] | None = Field(description="Names of the classes, in the order of probabilities")
    outputs: list[str] | None = Field(description="Names of the real outputs, in the order of means")
    predictions: list[Prediction] = Field(description="One for each input, in their order")


def application(model: Model, access: Access, limits: Limits) -> App:
    """The service on a model, behind its guard.

    Args:
        model: The model.
        access: Address, names and token.
        limits: Limits of a request.
    """
    work, app = Work(limits.threads), plain_app("osculate serve", "/docs lists all")
    app.router.lifespan_context = closing(work)
    facts = model.facts()

    @app.head("/health", include_in_schema=False)
    @app.get("/health", summary="State of the server, without a token")
    async def health() -> Health:
        return Health(status="ok")

    @app.get("/model", summary="What is served")
    async def described() -> Facts:
        return facts

    @app.post("/predict", response_model=Predictions, openapi_extra={"requestBody": _request(model)})
    async def predict(request: Request) -> Response:
        """Predictions with their uncertainty."""
        kind, body = request.headers.get("content-type", ""), await request.body()

        def computed(ask: Callable[[], None]) -> bytes:
            if model.columns is None:
                values: Any = read_body(kind, body, model.input_shape, limits.rows)
            else:
                values = read_table(kind, body, model.columns, limits.rows)
            answers = model.answers(values, ask)
            found = Predictions(classes=facts.classes, outputs=facts.outputs, predictions=answers)
            return found.model_dump_json(exclude_unset=True).encode()

        return Response(await answered(work, computed), media_type=JSON)

    @app.get("/docs", include_in_schema=False)
    async def documented() -> HTMLResponse:
        return HTMLResponse(page(app.openapi()))

    add_style(app)
    return Guard(app, access, limits, ROUTES)


def plain_app(title: str, way_out: str) -> FastAPI:
    """An application without pages from elsewhere, whose refusals are sentences.

    Args:
        title: Name of the service.
        way_out: Hint for a client whose path or method is not known.
    """
    problems: dict[int | str, dict[str, Any]] = {
        status: {"model": Refusal, "description": text} for status, text in REFUSALS.items()
    }
    app = FastAPI(title=title, docs_url=None, redoc_url=None, redirect_slashes=False, responses=problems)

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return Response(error.body, error.status, error.headers, JSON)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> JSONResponse:
        sentence = {
            404: f"there is no such path: {way_out}.",
            405: f"this path has another method: {way_out}.",
        }
        return JSONResponse({"error": sentence.get(error.status_code, "the request is wrong.")}, error.status_code)

    return app


async def answered(work: Work, computed: Callable[[Callable[[], None]], T]) -> T:
    """Compute in a thread; what fails is logged by its kind alone, since its message may hold inputs.

    Raises:
        Refused: of the computation, or 500 for any other error.
    """
    try:
        return await work.run(computed)
    except (Refused, Abandoned):
        raise
    except Exception as error:
        LOG.log(logging.ERROR, "a prediction failed: %s", type(error).__name__)
        raise Refused(
            500, "the network failed on these inputs: try others; the log has the kind of the error."
        ) from None


def closing(work: Work) -> Callable[[FastAPI], Any]:
    """The life of an application, at the end of which its threads end."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        work.close()

    return life


def _request(model: Model) -> dict[str, Any]:
    """The body of /predict in the words of OpenAPI."""
    if model.columns is not None:
        kinds = {name: {"type": "number" if numeric else "string"} for name, numeric in model.columns.items()}
        row = {"type": "object", "properties": kinds, "required": list(kinds), "additionalProperties": False}
        rows = {"type": "array", "items": row, "minItems": 1, "description": "Rows of a table; null is missing"}
        table = {"type": "object", "properties": {ROWS: rows}, "required": [ROWS], "additionalProperties": False}
        text = {
            "type": "string",
            "description": f"A header with {', '.join(kinds)}, and a row in each line",
        }
        return {"required": True, "content": {JSON: {"schema": table}, CSV: {"schema": text}}}
    shape = model.input_shape
    value: dict[str, Any] = {"type": "number"}
    for size in reversed(shape):
        value = {"type": "array", "items": value, "minItems": size, "maxItems": size}
    inputs = {"type": "array", "items": value, "minItems": 1, "description": f"Inputs of shape {list(shape)} each"}
    schema = {"type": "object", "properties": {INPUTS: inputs}, "required": [INPUTS], "additionalProperties": False}
    text = {"type": "string", "description": "One input in a line, without a header"}
    return {"required": True, "content": {JSON: {"schema": schema}, CSV: {"schema": text}}}
