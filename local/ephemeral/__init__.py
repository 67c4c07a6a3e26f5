"""Bounded, observable, self-forgetting work inside one process."""

if __name__.startswith("local."):
    # The folder is importable from a checkout's root and would load a second copy with a sink registry of its own.
    raise ImportError("the folder 'local' is no package; write `import ephemeral` (pip install ephemeral-redis)")

from ._dispatcher import DispatcherStatistics as DispatcherStatistics
from ._dispatcher import SignalDispatcher as SignalDispatcher
from ._errors import BusUnavailableError as BusUnavailableError
from ._errors import CoordinatorCompletedError as CoordinatorCompletedError
from ._errors import CoordinatorNotCompletedError as CoordinatorNotCompletedError
from ._errors import EphemeralError as EphemeralError
from ._errors import NoHealthyProcessorError as NoHealthyProcessorError
from ._errors import OperationCancelledError as OperationCancelledError
from ._errors import ProcessingFailedError as ProcessingFailedError
from ._errors import UnknownCoordinatorError as UnknownCoordinatorError
from ._errors import UnknownOperationError as UnknownOperationError
from ._factory import CoordinatorFactory as CoordinatorFactory
from ._for_each import RunSummary as RunSummary
from ._for_each import ephemeral_for_each as ephemeral_for_each
from ._health import HealthOptions as HealthOptions
from ._ids import next_id as next_id
from ._keyed import EphemeralKeyedWorkCoordinator as EphemeralKeyedWorkCoordinator
from ._ladder_status import GroupStatistics as GroupStatistics
from ._ladder_status import LadderStatus as LadderStatus
from ._ladder_status import ProcessorHealth as ProcessorHealth
from ._ladder_status import RungStatus as RungStatus
from ._listeners import Subscription as Subscription
from ._operations import EphemeralOperationSnapshot as EphemeralOperationSnapshot
from ._operations import Operation as Operation
from ._operations import current_operation as current_operation
from ._options import EphemeralOptions as EphemeralOptions
from ._patterns import matches_pattern as matches_pattern
from ._priority_processor import PriorityProcessorAtom as PriorityProcessorAtom
from ._propagation import SignalBlockReason as SignalBlockReason
from ._propagation import SignalConstraints as SignalConstraints
from ._questions import OperationSignalSummary as OperationSignalSummary
from ._results import EphemeralOperationResultSnapshot as EphemeralOperationResultSnapshot
from ._results import EphemeralResultCoordinator as EphemeralResultCoordinator
from ._signals import SignalEvent as SignalEvent
from ._signals import SignalPropagation as SignalPropagation
from ._sink import SignalSink as SignalSink
from ._sink import SinkStatistics as SinkStatistics
from ._statistics import CoordinatorStatistics as CoordinatorStatistics
from ._streams import SignalStream as SignalStream
from ._work import EphemeralWorkCoordinator as EphemeralWorkCoordinator

__all__ = [
    "BusUnavailableError",
    "CoordinatorCompletedError",
    "CoordinatorFactory",
    "CoordinatorNotCompletedError",
    "CoordinatorStatistics",
    "DispatcherStatistics",
    "EphemeralError",
    "EphemeralKeyedWorkCoordinator",
    "EphemeralOperationResultSnapshot",
    "EphemeralOperationSnapshot",
    "EphemeralOptions",
    "EphemeralResultCoordinator",
    "EphemeralWorkCoordinator",
    "GroupStatistics",
    "HealthOptions",
    "LadderStatus",
    "NoHealthyProcessorError",
    "Operation",
    "OperationCancelledError",
    "OperationSignalSummary",
    "PriorityProcessorAtom",
    "ProcessingFailedError",
    "ProcessorHealth",
    "RunSummary",
    "RungStatus",
    "SignalBlockReason",
    "SignalConstraints",
    "SignalDispatcher",
    "SignalEvent",
    "SignalPropagation",
    "SignalSink",
    "SignalStream",
    "SinkStatistics",
    "Subscription",
    "UnknownCoordinatorError",
    "UnknownOperationError",
    "current_operation",
    "ephemeral_for_each",
    "matches_pattern",
    "next_id",
]
