// Clients of the gateways: each call reserves, is sent, streams and is settled, as
// gateway/ai does it, and is recorded as its client saw it.
import { Problem } from '../../src/kernel/problem.ts';
import type { Clock } from '../../src/kernel/clock.ts';
import type { Ledger, PaidCall, Reservation } from '../../src/gateway/credits/core/ports.ts';
import type { UsageFacts } from '../../src/gateway/usage/index.ts';
import type { CallPlan } from './schedule.ts';
import type { CallRecord, Machine, World } from './world.ts';
import { checkAnswer, checkRefusal } from './invariants.ts';

/** Starts the call when its machine has a gateway. A dead or stopped gateway does not answer. */
export function startCall(world: World, machine: Machine, plan: CallPlan): void {
  const { gateway } = machine;
  if (gateway?.process.state !== 'running' || !gateway.isReady || gateway.ledger === null) {
    world.coverage.count('call without a gateway');
    return;
  }
  const record: CallRecord = {
    plan,
    gateway,
    machine,
    state: 'reserving',
    amount: plan.bound,
    price: 0n,
    mayBeRefused: false,
    mayBePaid: false,
    hasRivals: false,
    isSent: false,
  };
  world.calls.push(record);
  if (plan.isRefused) world.server.model.refusedRequests.add(plan.requestId);
  world.bounds.set(plan.requestId, plan.bound);
  world.openCalls.add(record);
  runCall(world, record, gateway.ledger).catch((error: unknown) => endWithError(world, record, error));
}

async function runCall(world: World, record: CallRecord, ledger: Pick<Ledger, 'reserve'>): Promise<void> {
  const { plan } = record;
  const { clock } = record.gateway;
  const pendingReservation = ledger.reserve(paidCall(plan), plan.bound);
  const isAtOnce = !(pendingReservation instanceof Promise);
  world.coverage.count(isAtOnce ? 'reserve at once' : 'reserve with a wait');
  const reservation = isAtOnce ? pendingReservation : await pendingReservation;
  record.state = 'reserved';
  world.trace?.(`${plan.requestId} reserved ${plan.bound}`);
  try {
    await clock.sleep(plan.sendMs);
    await send(world, record, reservation, clock);
  } catch (error) {
    if (record.state === 'reserved') {
      // A sent call is charged, even when a later attempt fails.
      if (record.isSent) await settle(world, record, reservation, plan.inputCredits);
      else release(record, reservation);
    }
    throw error;
  }
}

async function send(world: World, record: CallRecord, reservation: Reservation, clock: Clock): Promise<void> {
  const { plan } = record;
  if (plan.raiseTo !== null && plan.raiseTo > reservation.amount) {
    world.coverage.count('raise');
    await reservation.raise(plan.raiseTo);
    record.amount = plan.raiseTo;
    world.bounds.set(plan.requestId, plan.raiseTo);
  }
  for (let attempt = 0; attempt < plan.attempts; attempt += 1) {
    if (plan.end === 'release' && attempt === 0) break;
    reservation.markSent({
      model: 'model',
      provider: 'provider',
      inputCredits: plan.inputCredits,
      facts: facts('upstream_failed'),
    });
    record.isSent = true;
    await clock.sleep(attempt + 1 < plan.attempts ? 5 : 0);
  }
  if (plan.end === 'release') {
    release(record, reservation);
    world.coverage.count('release');
    world.openCalls.delete(record);
    return;
  }
  for (let part = 1; part <= plan.checkpoints; part += 1) {
    await clock.sleep(plan.answerMs / (plan.checkpoints + 1));
    const credits = (plan.price * BigInt(part)) / BigInt(plan.checkpoints + 1);
    reservation.checkpoint(credits, facts('upstream_failed'), part * 300);
  }
  await clock.sleep(plan.answerMs / (plan.checkpoints + 1));
  await settle(world, record, reservation, plan.price);
}

async function settle(
  world: World,
  record: CallRecord,
  reservation: Reservation,
  credits: bigint,
): Promise<void> {
  const { plan } = record;
  record.state = 'settling';
  record.price = credits;
  const settlement = reservation.settle(credits, facts('completed'));
  if (plan.end === 'settle twice') {
    world.coverage.count('settle twice');
    await Promise.all([settlement, reservation.settle(credits, facts('completed'))]);
    reservation.release();
  }
  await settlement;
  record.state = 'answered';
  world.trace?.(`${plan.requestId} answered, price ${credits}`);
  world.openCalls.delete(record);
  world.coverage.count('answer');
  world.onAnswer = world.onAnswer.filter((listener) => !listener(record));
  if (credits > record.amount) world.coverage.count('price above the reservation');
  checkAnswer(world, record);
}

function release(record: CallRecord, reservation: Reservation): void {
  reservation.release();
  record.state = 'released';
}

function endWithError(world: World, record: CallRecord, error: unknown): void {
  world.openCalls.delete(record);
  if (!(error instanceof Problem)) {
    world.failure ??= `An unexpected error: ${error instanceof Error ? error.stack : String(error)}`;
    return;
  }
  world.coverage.count(`error ${error.code}`);
  world.trace?.(`${record.plan.requestId} ${record.state}: ${error.code} ${error.message}`);
  if (record.state === 'answered' || record.state === 'released') return;
  if (record.state !== 'reserving') {
    // A raise that is refused gives the reservation back; a failed settlement keeps it.
    record.state = record.state === 'settling' ? 'unsettled' : 'failed';
    return;
  }
  record.state = error.status === 402 ? 'refused' : 'failed';
  checkRefusal(world, record, error);
}

export function paidCall(plan: Pick<CallPlan, 'requestId' | 'userId' | 'tokenId'>): PaidCall {
  return {
    requestId: plan.requestId,
    userId: plan.userId,
    bureauId: 'bureau',
    tokenId: plan.tokenId,
    action: 'stream',
    model: 'model',
    provider: 'provider',
  };
}

function facts(outcome: UsageFacts['outcome']): UsageFacts {
  return {
    action: 'stream',
    model: 'model',
    provider: 'provider',
    tokens: { input: 1, cachedInput: 0, cacheWrite: 0, output: 1, reasoning: 0 },
    units: {},
    outcome,
    estimated: false,
    ttftMs: 1,
    durationMs: 2,
  };
}
