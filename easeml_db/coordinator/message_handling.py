"""Messages, and the parts that each concerns."""

from __future__ import annotations

from easeml_db.coordinator.effects import Effect, OpenSlots, Stop
from easeml_db.coordinator.parts import Parts
from easeml_db.coordinator.ports.messages import (
    InstanceBilled,
    InstanceDown,
    InstanceFailed,
    InstanceUp,
    Message,
    Order,
    Piloted,
    ProgramSaid,
    RunChanged,
    SlotReady,
    SlotsChanged,
    SlotStuck,
    SlotWaiting,
    StopRequested,
    TenantsChanged,
    UnitFailed,
    UnitRecorded,
)
from easeml_db.coordinator.ports.slots import SlotStore
from easeml_db.errors import OutOfSpace, ServerBusy


async def handle(message: Message, parts: Parts, slots: SlotStore, now_seconds: float) -> list[Effect]:
    """Report a message to the parts that it concerns; return the effects."""
    match message:
        case UnitRecorded():
            return await _unit_recorded(message, parts, now_seconds) + _drained(message.order, parts)
        case Piloted(order, train_seconds, evaluate_seconds, sample):
            parts.dispatcher.piloted(order.slot_id, train_seconds, evaluate_seconds, sample)
            parts.arms.timed(order.unit.run_id)
            return _drained(order, parts)
        case UnitFailed():
            return await parts.retries.failed(message, now_seconds) + _drained(message.order, parts)
        case SlotStuck():
            return [*await parts.retries.stuck(message, now_seconds), OpenSlots()]
        case SlotReady(slot_id):
            parts.dispatcher.board.ready(slot_id)
            await slots.explain(slot_id, None)
        case SlotWaiting(slot_id, reason):
            parts.dispatcher.board.waiting(slot_id)
            await slots.explain(slot_id, reason)
        case RunChanged(run_id):
            parts.reading.report(run_id)
        case SlotsChanged():
            await parts.instances.count_local()
            return [OpenSlots()]
        case InstanceBilled() | InstanceUp() | InstanceDown() | InstanceFailed() | ProgramSaid():
            return await parts.instances.heard(message)
        case TenantsChanged():
            await parts.arms.renew_tenancy()
        case StopRequested():
            return [Stop()]
    return []


async def _unit_recorded(message: UnitRecorded, parts: Parts, now_seconds: float) -> list[Effect]:
    order, failures = message.order, message.failures
    parts.dispatcher.recorded(order.slot_id, message.seconds, failures)
    for one in order.by_trial():
        if one.unit.trial_id not in failures:
            parts.procedures.recorded(one.alone()[-1].unit)
    effects = await parts.retries.members_failed(message, now_seconds)
    has_no_room = any(isinstance(error, (OutOfSpace, ServerBusy)) for error in failures.values())
    if len(failures) < len(order.by_trial()) and not has_no_room:
        parts.retries.recorded(order.unit.run_id)
    await parts.reclaiming.add(message.pruned_bytes)
    return effects


def _drained(order: Order, parts: Parts) -> list[Effect]:
    """Close the sessions of slots that were to end with this order."""
    return [] if parts.dispatcher.board.active() >= set(order.slot_ids) else [OpenSlots()]
