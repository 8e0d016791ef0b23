// The promises of the ledger. `checkStep` runs after each step, the others where a
// client gets an answer, a lease is used or the world is quiet.
import { maximumClockJumpMs } from '../../src/gateway/credits/allotments/times.ts';
import type { Problem } from '../../src/kernel/problem.ts';
import { larger, smaller } from './bigint.ts';
import type { JournalFolder } from './journal-model.ts';
import type { CallPlan } from './schedule.ts';
import type { Process } from './scheduler.ts';
import type { StoreModel, StoredAllotment } from './store-model.ts';
import { type CallRecord, fail, type Gateway, isReachable, type World } from './world.ts';

/** The longest wait for an answer, and the next renewal. */
export const aftermathMs = 11_000;
/**
 * Longest time after a renewal was sent during which an allotment may be used; it is taken back 40 s later.
 */
const leaseMs = 20_000;
const takeBackMs = 60_000;

/** `process` is the process whose event ran. */
export function checkStep(world: World, process: Process | null): void {
  const { model } = world.server;
  const isChanged = world.checkedChanges !== model.changes;
  world.checkedChanges = model.changes;
  if (isChanged) checkBalances(world, model);
  for (const { gateway } of world.machines) {
    if (gateway === null || (!isChanged && process !== null && process !== gateway.process)) continue;
    checkReservations(world, gateway);
    checkCovered(world, gateway);
    checkKnown(world, gateway);
  }
  for (const call of world.openCalls) if (call.state === 'reserving') noteShortage(world, call);
}

/**
 * No balance and no cap is below zero, a report counts no more than its allotment has, and an account with a debt has
 * no free credits. Accounts and keys hold the credits of their holds and allotments.
 */
function checkBalances(world: World, model: StoreModel): void {
  const heldOf = new Map<string, bigint>();
  for (const row of model.allotments.values()) {
    if (row.amount < 0n) fail(world, `allotment ${row.allotmentId} has ${row.amount} credits`);
    if (row.reserved + row.unapplied > row.amount)
      fail(world, `the report of ${row.allotmentId} exceeds its amount`);
    addTo(heldOf, row.userId, row.amount);
    addTo(heldOf, row.tokenId, row.amount);
  }
  for (const { userId, tokenId, amount } of model.holds.values()) {
    addTo(heldOf, userId, amount);
    addTo(heldOf, tokenId, amount);
  }
  for (const { userId, posted, held, owed: debt } of model.accounts.values()) {
    if (posted < held) fail(world, `account ${userId} has ${posted} credits and holds ${held}`);
    if (debt < 0n || (debt > 0n && posted > held))
      fail(world, `account ${userId} owes ${debt} and has ${posted - held}`);
    if (held !== (heldOf.get(userId) ?? 0n))
      fail(world, `account ${userId} holds ${held}, its rows ${heldOf.get(userId)}`);
  }
  for (const { tokenId, cap, spent: expense, held } of model.keys.values()) {
    if (cap !== null && expense + held > cap)
      fail(world, `key ${tokenId} spent ${expense}, holds ${held}, and has the cap ${cap}`);
    if (held !== (heldOf.get(tokenId) ?? 0n))
      fail(world, `key ${tokenId} holds ${held}, its rows ${heldOf.get(tokenId)}`);
  }
}

/**
 * The process counts no more credits as reserved than its open calls have reserved, and reserves more only under a
 * valid lease.
 */
function checkReservations(world: World, gateway: Gateway): void {
  let [totalCredits, openCredits] = [0n, 0n];
  for (const { reserved, unapplied, allotmentId } of gateway.reports()) {
    if (reserved < 0n || unapplied < 0n)
      fail(world, `${allotmentId} counts ${reserved} reserved and ${unapplied} unapplied credits`);
    if (reserved > (gateway.reserved.get(allotmentId) ?? 0n)) checkLease(world, gateway, allotmentId);
    gateway.reserved.set(allotmentId, reserved);
    totalCredits += reserved;
  }
  for (const { gateway: owner, state, amount } of world.openCalls)
    if (owner === gateway && state === 'reserved') openCredits += amount;
  if (totalCredits > openCredits)
    fail(
      world,
      `${gateway.gatewayId} counts ${totalCredits} reserved credits, its calls have ${openCredits}`,
    );
}

/** The row's amount covers what is reserved on it and what its journal still has to charge. */
function checkCovered(world: World, gateway: Gateway): void {
  const { model } = world.server;
  if (gateway.generation !== model.generationId) return;
  const { unapplied, prices } = unappliedOf(world, gateway);
  for (const { allotmentId, reserved } of gateway.reports()) {
    const row = model.allotments.get(allotmentId);
    if (row === undefined) continue;
    const need = reserved + (unapplied.get(allotmentId) ?? 0n);
    if (row.amount < need)
      fail(
        world,
        `${allotmentId} has ${row.amount} credits in the database, and ${need} are reserved or unapplied`,
      );
    // Otherwise a balance would count a charge twice. A line that was put aside may
    // be reported until the next renewal.
    if (model.refusedRequests.size > 0) continue;
    const highestPrice = prices.get(allotmentId) ?? 0n;
    if (row.unapplied > highestPrice)
      fail(
        world,
        `${allotmentId} is reported with ${row.unapplied} unapplied credits, and has ${highestPrice}`,
      );
  }
}

/**
 * Some time after its last lost answer, the gateway knows all credits of its rows: none are lost between
 * database and memory.
 */
function checkKnown(world: World, gateway: Gateway): void {
  const { model } = world.server;
  const { process, lastTroubleMs, generation, isReady } = gateway;
  if (!isReady || generation !== model.generationId || process.state !== 'running') return;
  if (world.scheduler.nowMs() - lastTroubleMs < aftermathMs) return;
  for (const { allotmentId, amount, charged, version, write } of gateway.reports()) {
    const row = model.allotments.get(allotmentId);
    if (row === undefined || write !== null || version === 0) continue;
    if (row.amount + row.charged > amount + charged)
      fail(world, `${allotmentId} has ${row.amount} credits in the database and ${amount} in memory`);
  }
}

/**
 * Charges of the gateway's journal that the database has not applied, by allotment: up to
 * their reservations (`unapplied`) and in full (`prices`).
 */
function unappliedOf(
  world: World,
  gateway: Gateway,
): { unapplied: Map<string, bigint>; prices: Map<string, bigint> } {
  const sums = { unapplied: new Map<string, bigint>(), prices: new Map<string, bigint>() };
  const folder = folderOf(gateway);
  if (folder === undefined) return sums;
  const appliedSeq = world.server.model.journals.get(gateway.gatewayId)?.appliedSeq ?? 0;
  for (let index = folder.lines.length - 1; index >= 0; index -= 1) {
    const storedLine = folder.lines[index];
    if (storedLine === undefined || storedLine.seq <= appliedSeq) break;
    const { line } = storedLine;
    if (line.kind !== 'final' || line.allotmentId === null) continue;
    const bound = world.bounds.get(line.call.requestId) ?? 0n;
    addTo(sums.unapplied, line.allotmentId, smaller(line.credits, bound));
    addTo(sums.prices, line.allotmentId, line.credits);
  }
  return sums;
}

/** The last byte of an answer leaves only when its charge is durable. */
export function checkAnswer(world: World, { plan, gateway, price }: CallRecord): void {
  const { recordedRequests, refusedRequests } = world.server.model;
  if (price === 0n || recordedRequests.has(plan.requestId) || refusedRequests.has(plan.requestId)) return;
  const folder = folderOf(gateway);
  const finalLine = folder?.lines.findLast(
    ({ line }) => line.kind === 'final' && line.call.requestId === plan.requestId,
  );
  if (folder === undefined || finalLine === undefined || finalLine.seq > folder.syncedSeq)
    fail(world, `${plan.requestId} was answered before its charge was on disk`);
}

/**
 * A 402 is allowed only while account or key lack the credits, all idle allotments included. While they
 * lack them, no other error is allowed.
 */
export function checkRefusal(world: World, call: CallRecord, { status, code }: Problem): void {
  const { requestId } = call.plan;
  if (status !== 402 && world.isCalm && !call.mayBePaid)
    fail(world, `${requestId} got ${code}, and not 402, although credits were missing while it waited`);
  if (call.mayBeRefused) return;
  if (status === 402) fail(world, `${requestId} got 402 although ${call.amount} credits were available`);
  else if (world.isCalm && !call.hasRivals)
    fail(world, `${requestId} got ${code} in a world without faults or rivals`);
}

/**
 * Marks a waiting call that may be refused: credits are missing, other calls want them too, or a holder does
 * not answer.
 */
function noteShortage(world: World, call: CallRecord): void {
  if (world.isCalm) call.mayBePaid ||= maximumCredits(world, call) >= call.plan.bound;
  if (call.mayBeRefused) return;
  const { userId, bound } = call.plan;
  call.mayBeRefused = !isReachableForAll(world, userId) || spareCredits(world, call) < bound;
}

/** The most that the call could get at this moment: all of the balance that other calls have not reserved. */
function maximumCredits(world: World, call: CallRecord): bigint {
  const { userId, bound } = call.plan;
  let highestCredits = world.server.model.accounts.get(userId)?.posted ?? 0n;
  for (const openCall of world.openCalls) {
    if (openCall === call || openCall.plan.userId !== userId) continue;
    // Calls that wait for the same credits may get 503 in their turn.
    if (openCall.state === 'reserving') return bound;
    if (openCall.state === 'reserved') highestCredits -= openCall.amount;
  }
  return highestCredits;
}

export function isReachableForAll(world: World, userId: string): boolean {
  const { model, messageFaults } = world.server;
  if (Object.values(messageFaults).some((rate: number) => rate > 0)) return false;
  for (const machine of world.machines)
    if (machine.gateway !== null && !isReachable(world, machine)) return false;
  if (world.scheduler.nowMs() < world.troubledUntilMs) return false;
  for (const row of model.allotments.values())
    if (row.userId === userId && !world.machines.some(({ gateway }) => isHolder(world, gateway, row)))
      return false;
  return true;
}

/**
 * Whether the process has the allotment. After an outage it may lack an allotment whose opening got
 * no answer.
 */
function isHolder(
  world: World,
  gateway: Gateway | null,
  { gatewayId, allotmentId }: StoredAllotment,
): boolean {
  if (gateway?.gatewayId !== gatewayId || !gateway.isReady) return false;
  for (const report of gateway.reports()) if (report.allotmentId === allotmentId) return report.version > 0;
  return world.troubledUntilMs === 0;
}

/**
 * The credits that account and key could pay if all idle credits were given back and all other
 * waiting calls were served first.
 */
function spareCredits(world: World, call: CallRecord): bigint {
  const { userId, tokenId } = call.plan;
  const { model } = world.server;
  const account = model.accounts.get(userId);
  const key = model.keys.get(tokenId);
  if (account === undefined || key === undefined || account.owed > 0n) return 0n;
  let [accountUse, keyUse] = [0n, 0n];
  const use = (credits: bigint, ofToken: string): void => {
    accountUse += credits;
    if (ofToken === tokenId) keyUse += credits;
  };
  for (const hold of model.holds.values()) if (hold.userId === userId) use(hold.amount, hold.tokenId);
  // A ticket keeps its precedence for a second, even if its call was refused meanwhile.
  for (const { userId: ofUser, tokenId: ofToken, need, gatewayId, createdMs } of model.tickets.values())
    if (ofUser === userId && createdMs > world.scheduler.nowMs() + world.server.clockAheadMs - 1_000)
      if (gatewayId !== call.gateway.gatewayId) use(need, ofToken);
  for (const otherCall of world.calls) {
    if (otherCall === call || otherCall.plan.userId !== userId || isOver(model, otherCall)) continue;
    // A raise that waits and a price above the bound can take more.
    use(larger(otherCall.amount, otherCall.plan.raiseTo ?? 0n, otherCall.plan.price), otherCall.plan.tokenId);
    if (otherCall.state === 'reserving') call.hasRivals = true;
  }
  const accountFree = account.posted - accountUse;
  return key.cap === null ? accountFree : smaller(accountFree, key.cap - key.spent - keyUse);
}

export function isOver(model: StoreModel, { state, plan }: CallRecord): boolean {
  if (state === 'refused' || state === 'failed' || state === 'released') return true;
  return model.recordedRequests.has(plan.requestId);
}

/** An allotment took a reservation or sent a call: its lease must be valid by any clock. */
export function checkLease(world: World, gateway: Gateway, allotmentId: string): void {
  const sentMs = gateway.leases.get(allotmentId);
  const ageMs = sentMs === undefined ? Number.POSITIVE_INFINITY : world.scheduler.nowMs() - sentMs;
  // A suspension of up to a second goes unnoticed, and a jump of the wall clock can hide a longer one. The allotment
  // must not be used after another gateway may have taken it back.
  const limitMs = world.hadClockJump ? takeBackMs : leaseMs + maximumClockJumpMs + 1;
  if (ageMs > limitMs) fail(world, `${allotmentId} was used ${ageMs} ms after its lease was renewed`);
}

/** At the end: everything is applied, nothing is held, each answer was recorded and charged once. */
export function checkQuiet(world: World): void {
  const { model } = world.server;
  const chargedOf = new Map<string, bigint>();
  for (const { userId, charged } of model.usage.values())
    if (userId !== null) addTo(chargedOf, userId, charged);
  for (const { userId, held, posted, beforeCharges } of model.accounts.values()) {
    if (held !== 0n) fail(world, `account ${userId} still holds ${held}`);
    const paidCredits = beforeCharges - posted;
    if (paidCredits !== (chargedOf.get(userId) ?? 0n))
      fail(
        world,
        `account ${userId} paid ${paidCredits} for calls whose charges are ${chargedOf.get(userId) ?? 0n}`,
      );
  }
  for (const { gateway } of world.machines)
    for (const { allotmentId, reserved, unapplied } of gateway?.reports() ?? [])
      if (reserved !== 0n || unapplied !== 0n)
        fail(world, `${allotmentId} still has ${reserved} reserved and ${unapplied} unapplied credits`);
  const recordedCalls = new Map<string, { count: number; charged: bigint; price: bigint; isLate: boolean }>();
  for (const { requestId, charged, price, isLate } of model.usage.values()) {
    const recordedCharge = recordedCalls.get(requestId);
    recordedCalls.set(requestId, { count: (recordedCharge?.count ?? 0) + 1, charged, price, isLate });
  }
  for (const call of world.calls) checkRecord(world, call, recordedCalls.get(call.plan.requestId));
}

function checkRecord(
  world: World,
  { plan, state, price, amount, gateway }: CallRecord,
  record: { count: number; charged: bigint; price: bigint; isLate: boolean } | undefined,
): void {
  const { requestId } = plan;
  if (record !== undefined && record.count > 1)
    fail(world, `${requestId} was recorded ${record.count} times`);
  if (state !== 'answered' || world.lostJournals.has(gateway.gatewayId)) return;
  // Charges of another generation are put aside for the operator.
  if (gateway.generation !== world.server.model.generationId) return;
  if (world.server.model.refusedRequests.has(requestId)) return;
  // The usage line of a free call waits for no sync, so that a power cut can take it.
  if (record === undefined && price === 0n) return;
  if (record === undefined) return fail(world, `${requestId} was answered and not recorded`);
  if (record.price !== price) fail(world, `${requestId} cost ${price} and was recorded with ${record.price}`);
  if (record.charged > price) fail(world, `${requestId} cost ${price} and was charged ${record.charged}`);
  if (record.charged < price && !record.isLate && price <= amount && !isBesideDearCall(world, plan, gateway))
    fail(
      world,
      `${requestId} cost ${price} and was charged ${record.charged}, within its reservation of ${amount}`,
    );
}

/**
 * A journal that another process replays does not record how much of a price above its bound came from the
 * allotment.
 */
function isBesideDearCall(world: World, { tokenId }: CallPlan, gateway: Gateway): boolean {
  return (
    gateway.process.state === 'dead' &&
    world.calls.some(
      (call) => call.gateway === gateway && call.plan.tokenId === tokenId && call.price > call.amount,
    )
  );
}

function folderOf(gateway: Gateway): JournalFolder | undefined {
  return gateway.machine.disk.folders.get(gateway.gatewayId);
}

function addTo(sums: Map<string, bigint>, key: string, credits: bigint): void {
  sums.set(key, (sums.get(key) ?? 0n) + credits);
}
