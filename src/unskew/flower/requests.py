"""What a server may ask of a node. Every message becomes checked values here, and only here.

A node refuses anything else before it computes: with the field's name, and within a bound of time
and memory that the message cannot change.
"""

from typing import Annotated, Any, Literal, Self

from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import from_json
from torch import Tensor

from unskew.data.preprocessing.declared import Declared, read_schema
from unskew.data.preprocessing.message_checks import MAX_COLUMNS
from unskew.data.preprocessing.transform import Transform
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.flower.wire import ARRAYS, MAX_REASON, MODEL, REQUEST, Refusal, to_tensors
from unskew.privacy import MAX_NOISE
from unskew.utils.specs import explain

MAX_CLIENTS, MAX_CLASSES = 1_000_000, 100_000
"""The largest numbers of clients and of classes in a run: a node allocates memory for each."""

_SHOWN = 100
_Text = Annotated[str, Field(max_length=10_000)]
_RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""Names no file of the state folder: these have a dot."""
_StageIndex = Annotated[int, Field(ge=0, lt=1_000)]
_Round = Annotated[int, Field(ge=0, lt=100_000_000)]
_Client = Annotated[int, Field(ge=0, lt=MAX_CLIENTS)]
_Seed = Annotated[int, Field(ge=0, lt=2**63)]


class ServerMessage(BaseModel):
    """A request: one JSON object, parsed strictly."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    run: _RunId
    """The id of the run; a resumed run keeps its id."""

    def to_record(self) -> ConfigRecord:
        """Return the record that is sent."""
        return ConfigRecord({"json": self.model_dump_json(by_alias=True)})

    @classmethod
    def of(cls, content: RecordDict, largest: int = 100_000) -> Self:
        """Read the request of a message; refuse one that is not as declared here.

        No more than ``largest`` characters are read.
        """
        try:
            return cls._parsed(content.config_records.get(REQUEST, ConfigRecord()), largest)
        except ValidationError as error:
            raise Refusal(f"request: {explain(error, cls)}") from None

    @classmethod
    def _parsed(cls, record: ConfigRecord, largest: int) -> Self:
        text = record.get("json")
        if not isinstance(text, str) or len(text) > largest:
            raise Refusal(f"request: must be JSON of at most {largest} characters")
        cls._refuse_unknown(text)
        return cls.model_validate_json(text)

    @classmethod
    def _refuse_unknown(cls, text: str) -> None:
        """Refuse the first unknown field at once: each would be an error that takes time."""
        try:
            plain = from_json(text)
        except ValueError:
            return  # reported with its place when it is read
        settings = plain.get("settings") if isinstance(plain, dict) else None
        for given, model, of in ((plain, cls, ""), (settings, Settings, "settings.")):
            known = {field.alias or name for name, field in model.model_fields.items()}
            names = given if isinstance(given, dict) else ()
            unknown = next((name for name in names if name not in known), None)
            if unknown is not None:
                raise Refusal(f"request: {of}{unknown[:_SHOWN]} is not known")


def _or_none(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:
        return None


_OrNone = WrapValidator(_or_none)


class Origin(BaseModel):
    """Where a request comes from, as far as it can be read, for the log of a refusal."""

    run: Annotated[_RunId | None, _OrNone] = None
    stage_index: Annotated[_StageIndex | None, _OrNone] = None
    round: Annotated[_Round | None, _OrNone] = None

    @classmethod
    def of(cls, content: RecordDict) -> Self:
        """Read the beginning of a request, which may be wrong, or longer than is allowed."""
        record = content.config_records.get(REQUEST, ConfigRecord())
        text = record.get("json")
        try:
            plain = (
                dict(record) if text is None else from_json(str(text)[:20_000], allow_partial=True)
            )
            return cls.model_validate(plain, strict=True)
        except ValueError:
            return cls()


class Greeting(ServerMessage):
    """The question for a node's name and the number of its samples, when a run starts."""

    def to_record(self) -> ConfigRecord:
        """Return the record that is sent."""
        return ConfigRecord({"run": self.run})

    @classmethod
    def _parsed(cls, record: ConfigRecord, largest: int) -> Self:
        del largest
        return cls.model_validate(dict(record))


class Request(ServerMessage):
    """What a node must know to train or evaluate, besides the tensors."""

    method: _Text
    settings: Settings
    stage_index: _StageIndex
    round: _Round
    client: _Client
    clients: Annotated[int, Field(ge=1, le=MAX_CLIENTS)]
    classes: Annotated[int, Field(ge=1, le=MAX_CLASSES)]
    layout: _Text
    """The fingerprint of the stage's network."""
    target: tuple[float, Annotated[float, Field(gt=0)]] | None = None
    """The mean and standard deviation of regression targets; None for classes."""
    noise: Annotated[float, Field(ge=1e-6, le=MAX_NOISE)] | None = None
    """The noise multiplier of a private stage, set for the client that needs the most noise."""
    state: tuple[_StageIndex, _Round] | None = None
    """The state that the node starts from: the last one whose upload was used."""
    keep: bool = False
    """Whether the node keeps the model that it uses, since this evaluation is the last one."""

    @model_validator(mode="after")
    def _client_is_one_of_the_clients(self) -> "Request":
        if self.client >= self.clients:
            raise ValueError(f"client: must be below clients, {self.clients} (got {self.client})")
        return self


class Fitted(BaseModel):
    """What all nodes apply to their tables, as the step ``apply`` sends it."""

    model_config = ServerMessage.model_config

    transform: Transform
    classes: (
        Annotated[int, Field(ge=1, le=MAX_CLASSES)]
        | Annotated[list[_Text], Field(min_length=1, max_length=MAX_CLASSES)]
        | None
    )
    """Their number or their names; None for a regression."""

    @field_validator("transform", mode="before")
    @classmethod
    def _has_few_columns(cls, plain: Any) -> Any:
        columns = plain.get("columns") if isinstance(plain, dict) else None
        if isinstance(columns, list) and len(columns) > MAX_COLUMNS:
            raise ValueError(f"must have at most {MAX_COLUMNS} columns")
        return plain


def _read_schema(plain: Any) -> dict[str, Declared]:
    if isinstance(plain, dict) and len(plain) > MAX_COLUMNS:
        raise ValueError(f"must have at most {MAX_COLUMNS} columns")
    try:
        return read_schema(plain)
    except UnskewError as error:
        raise ValueError(str(error)) from None


class PrepareRequest(ServerMessage):
    """What a node is asked before the first round."""

    prepare: _Text
    step: Literal["describe", "summarise", "apply"]
    client: _Client = 0
    seed: _Seed = 0
    columns: (
        Annotated[
            dict[str, Declared],
            PlainValidator(_read_schema),
            PlainSerializer(lambda schema: {name: each.to_json() for name, each in schema.items()}),
        ]
        | None
    ) = Field(default=None, alias="schema")
    """What the columns hold, for the step ``summarise``."""
    fitted: Fitted | None = None
    """The transformation and the classes, for the step ``apply``."""

    @model_validator(mode="after")
    def _has_what_its_step_needs(self) -> "PrepareRequest":
        for field, step in (("schema", "summarise"), ("fitted", "apply")):
            value = self.columns if field == "schema" else self.fitted
            if value is None and self.step == step:
                raise ValueError(f"{field}: the step {step} needs it")
        return self


def read_arrays(content: RecordDict, megabytes: int) -> dict[str, Tensor]:
    """Read the tensors of a message; refuse those that are too large, or no arrays of numbers.

    A method may send numbers of any type.
    """
    arrays = content.array_records.get(ARRAYS, ArrayRecord())
    if sum(len(array.data) for array in arrays.values()) > megabytes * 1_000_000:
        raise Refusal(f"arrays: its policy allows messages of at most {megabytes} MB")
    try:
        return to_tensors(arrays)
    except UnskewError as error:
        raise Refusal(str(error)) from None


def forms_for_the_method(content: RecordDict) -> str:
    """Return the names and shapes of a message's tensors besides its models, for a log."""
    arrays = content.array_records.get(ARRAYS, ArrayRecord())
    models = (MODEL, "global", "vector")
    forms = [f"{name} of {array.shape}" for name, array in arrays.items() if name not in models]
    return ", ".join(forms)[:MAX_REASON]
