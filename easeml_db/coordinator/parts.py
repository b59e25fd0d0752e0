"""The parts of the loop, made from the ports of one world. They know each other as listed here, and never the loop."""

from __future__ import annotations

from easeml_db.coordinator.allocation_records import AllocationRecords
from easeml_db.coordinator.arm_opening import ArmOpening
from easeml_db.coordinator.crashes import CarriedOver, Crashes
from easeml_db.coordinator.failed_time import FailedTime
from easeml_db.coordinator.instance_keeping import InstanceKeeping
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.planned_runs import PlannedRuns
from easeml_db.coordinator.ports import Ports
from easeml_db.coordinator.procedure_runner import ProcedureRunner
from easeml_db.coordinator.reclaiming import Reclaiming
from easeml_db.coordinator.retries import Retries
from easeml_db.coordinator.run_reading import RunReading
from easeml_db.coordinator.settings import Settings
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher


class Parts:
    """One of each, from the ground up."""

    def __init__(self, ports: Ports, settings: Settings, carried_over: CarriedOver) -> None:
        self.lease, self.dispatcher = Lease(ports.lease), Dispatcher()
        self.crashes = Crashes(carried_over.crashed)
        self.failed_time = FailedTime(ports.tenancy, carried_over.slot_seconds)
        self.reclaiming = Reclaiming(ports.space, settings.reclaim_bytes, settings.reclaim_fraction)
        self.allocations = AllocationRecords(ports.allocations, self.lease, self.dispatcher)
        self.procedures = ProcedureRunner(ports.searches, ports.answering, ports.runs, self.lease, self.dispatcher)
        self.arms = ArmOpening(ports.tenancy, ports.runs, self.lease, self.dispatcher, self.procedures)
        self.reading = RunReading(ports.runs, ports.tenancy, self.dispatcher.runs, self.arms)
        self.instances = InstanceKeeping(
            ports.instances, ports.provisioner, self.lease, self.dispatcher.board, ports.clock
        )
        self.planned = PlannedRuns(
            ports.plans, ports.runs, self.lease, self.dispatcher, self.arms, self.instances,
            answering=ports.answering, clock=ports.clock, is_replanning=settings.is_replanning,
        )  # fmt: skip
        self.retries = Retries(
            ports.slots, ports.runs, ports.space, self.lease, self.dispatcher, self.arms, self.procedures,
            crashes=self.crashes, failed_time=self.failed_time, max_attempts=settings.max_attempts,
        )  # fmt: skip
