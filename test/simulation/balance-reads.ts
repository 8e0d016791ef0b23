// Checks each balance that a client reads: charges it must contain, and held credits it may show.
import { larger } from './bigint.ts';
import { isOver, isReachableForAll } from './invariants.ts';
import type { HoldRow, ShownBalance } from './store-model.ts';
import { type CallRecord, fail, type World } from './world.ts';

/**
 * Checks a balance: it contains the charges of all answers that clients had received completely before
 * they requested it.
 */
export function checkBalanceRead(world: World, userId: string, answers: readonly CallRecord[]): void {
  if (!isReachableForAll(world, userId)) return;
  const { recordedRequests, refusedRequests, generationId } = world.server.model;
  world.coverage.count('balance with all charges');
  for (const { plan, gateway, machine, price } of answers) {
    if (price === 0n || refusedRequests.has(plan.requestId)) continue;
    if (machine.gateway !== gateway || gateway.generation !== generationId) continue;
    if (!recordedRequests.has(plan.requestId))
      fail(world, `${plan.requestId} was answered before a balance was read without its charge`);
  }
}

/** The unfinished calls and the current holds of a user. */
export function currentUse(world: World, userId: string): { calls: CallRecord[]; holds: HoldRow[] } {
  const { model } = world.server;
  return {
    calls: world.calls.filter((call) => call.plan.userId === userId && !isOver(model, call)),
    holds: [...model.holds.values()].filter((hold) => hold.userId === userId),
  };
}

/**
 * Checks a balance: a call or a hold uses the held credits that it shows. `useBefore` is the use when
 * the balance was requested.
 */
export function checkShownHeld(
  world: World,
  userId: string,
  { held: shownCredits, owed: debt }: ShownBalance,
  useBefore: ReturnType<typeof currentUse>,
): void {
  // Idle credits that will pay a debt are not available.
  if (debt > 0n || !isReachableForAll(world, userId)) return;
  const useAfter = currentUse(world, userId);
  let usedCredits = 0n;
  for (const { amount, plan, price } of new Set([...useBefore.calls, ...useAfter.calls]))
    usedCredits += larger(amount, plan.raiseTo ?? 0n, plan.price, price);
  for (const { amount } of new Set([...useBefore.holds, ...useAfter.holds])) usedCredits += amount;
  world.coverage.count(
    usedCredits === 0n ? 'balance with idle credits alone' : 'balance with credits in use',
  );
  if (shownCredits > usedCredits)
    fail(world, `a balance shows ${shownCredits} credits as held, and at most ${usedCredits} are in use`);
}
