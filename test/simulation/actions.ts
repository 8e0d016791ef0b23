// Carries out the actions of a schedule: calls, faults of machines, database and
// network, and changes of balances.
import { Problem } from '../../src/kernel/problem.ts';
import { startCall } from './clients.ts';
import { noFaults } from './database-link.ts';
import { checkBalanceRead, checkShownHeld, currentUse } from './balance-reads.ts';
import { aftermathMs } from './invariants.ts';
import { holdLeaseMs, startGateway, type LedgerModules } from './gateway.ts';
import { createDisk, loseUnsyncedLines, loseUnwrittenLines } from './journal-model.ts';
import { type Action, printPlain } from './schedule.ts';
import type { CallRecord, Machine, World } from './world.ts';

/** Longest delay between the request for a balance and the statement that asks the other gateways. */
const maximumDelayMs = 1_000;

/** How long the gateways have to return idle credits of what was closed, before the change of the balance is made. */
const closingMs = 1_000;
/** How long the database is down during a restore. */
const restoreMs = 500;

type MachineAction = Extract<Action, { machine: number }>;
type SharedAction = Exclude<Action, MachineAction>;

export function act(world: World, action: Action, modules: LedgerModules): void {
  const { scheduler, coverage } = world;
  world.trace?.(printPlain(action));
  if (action.kind !== 'call') coverage.count(`action ${action.kind}`);
  if (action.kind === 'network cut' || action.kind === 'message faults' || action.kind === 'database stop')
    world.troubledUntilMs = Math.max(world.troubledUntilMs, scheduler.nowMs() + action.forMs + aftermathMs);
  if (!('machine' in action)) return actOnDatabase(world, action);
  const machine = world.machines[action.machine];
  if (machine !== undefined) actOnMachine(world, machine, action, modules);
}

function actOnMachine(world: World, machine: Machine, action: MachineAction, modules: LedgerModules): void {
  const { scheduler } = world;
  switch (action.kind) {
    case 'call':
      return startCall(world, machine, action);
    case 'kill':
    case 'power cut':
      endProcess(world, machine, action.kind);
      scheduler.after(action.restartMs, null, () => startGateway(world, machine, modules));
      return;
    case 'shutdown':
      return shutDown(world, machine, action.restartMs, modules);
    case 'stop':
    case 'suspend':
      return pause(world, machine, action);
    case 'wall clock jump':
      if (machine.gateway !== null) machine.gateway.process.wallOffsetMs += action.byMs;
      world.hadClockJump = true;
      return;
    case 'disk failure':
      machine.disk.isFailing = true;
      scheduler.after(action.forMs, null, () => void (machine.disk.isFailing = false));
      return;
    case 'disk loss':
      return loseDisk(world, machine, modules);
    case 'network cut':
      machine.cutUntilMs = scheduler.nowMs() + action.forMs;
      return;
    case 'balance read':
      return readBalance(world, machine, action);
    case 'exact hold':
      return holdExactly(world, machine, action);
  }
}

/** Acts on the database, or on the balances in it. */
function actOnDatabase(world: World, action: SharedAction): void {
  const { scheduler, server } = world;
  const { model } = server;
  switch (action.kind) {
    case 'message faults':
      if (world.isQuiet) return;
      server.messageFaults = action.faults;
      scheduler.after(action.forMs, null, () => void (server.messageFaults = noFaults));
      return;
    case 'database stop':
      return stopDatabase(world, action.forMs, action.clockAheadMs);
    case 'backup':
      world.backup = model.snapshot();
      return;
    case 'restore':
      return restore(world);
    case 'grant':
      return model.post(action.userId, action.credits);
    case 'refund':
    case 'deduct':
      model.close({ userId: action.userId });
      scheduler.after(closingMs, null, () =>
        model.takeBack(action.userId, action.credits, action.kind === 'refund'),
      );
      return;
    case 'cap':
      model.close({ tokenId: action.tokenId });
      scheduler.after(closingMs, null, () => model.lowerCap(action.tokenId, action.cap));
      return;
    case 'revoke':
      model.close({ tokenId: action.tokenId });
      return;
  }
}

/**
 * Ends the process at once. Its journal keeps the lines that the kernel, or after a power cut the disk, has.
 */
export function endProcess(world: World, machine: Machine, cause: 'kill' | 'power cut'): void {
  const { gateway } = machine;
  if (gateway === null) return;
  world.scheduler.kill(gateway.process);
  if (cause === 'power cut') loseUnsyncedLines(machine.disk, gateway.process, world.random);
  else loseUnwrittenLines(machine.disk, gateway.process);
  for (const call of world.openCalls) if (call.gateway === gateway) world.openCalls.delete(call);
  machine.gateway = null;
}

function shutDown(world: World, machine: Machine, restartMs: number, modules: LedgerModules): void {
  const { gateway } = machine;
  if (gateway === null) return;
  gateway.isReady = false;
  const end = (): void => {
    if (machine.gateway !== gateway) return;
    endProcess(world, machine, 'kill');
    world.scheduler.after(restartMs, null, () => startGateway(world, machine, modules));
  };
  gateway.close().then(end, end);
  // The supervisor kills the process after 30 seconds.
  world.scheduler.after(30_000, null, end);
}

function pause(
  world: World,
  machine: Machine,
  { kind, forMs }: Extract<Action, { kind: 'stop' | 'suspend' }>,
): void {
  const { gateway } = machine;
  if (gateway?.process.state !== 'running') return;
  const { process } = gateway;
  world.scheduler.stop(process);
  world.scheduler.after(forMs, null, () => {
    if (kind === 'suspend') process.suspendedMs += forMs;
    gateway.lastTroubleMs = world.scheduler.nowMs();
    world.scheduler.resume(process);
  });
}

/** The machine is lost with its disk, and another machine replaces it. */
function loseDisk(world: World, machine: Machine, modules: LedgerModules): void {
  endProcess(world, machine, 'power cut');
  for (const journalId of machine.disk.folders.keys()) world.lostJournals.add(journalId);
  machine.disk = createDisk();
  world.scheduler.after(1_000, null, () => startGateway(world, machine, modules));
}

function stopDatabase(world: World, forMs: number, clockAheadMs: number): void {
  const { server, scheduler } = world;
  server.isUp = false;
  server.starts += 1;
  const { starts } = server;
  scheduler.after(forMs, null, () => {
    if (server.starts !== starts || server.isUp) return;
    server.isUp = true;
    server.upSinceMs = scheduler.nowMs();
    server.clockAheadMs += clockAheadMs;
  });
}

/** `townhall db restore` while gateways run: an older copy with a new generation. */
function restore(world: World): void {
  const { server, backup } = world;
  if (backup === null) return;
  stopDatabase(world, restoreMs, 0);
  server.model.restore(backup, `generation-${server.starts}`);
  // The holds of the copy have leases as well. The events that would settle them may have run before the restore.
  for (const holdId of server.model.holds.keys())
    world.scheduler.after(holdLeaseMs, null, () => void server.model.settleHold(holdId, 0n));
}

/** Reads the balance on the machine soon after the user's next answer. */
function readBalance(
  world: World,
  machine: Machine,
  { userId, afterMs }: Extract<Action, { kind: 'balance read' }>,
): void {
  world.onAnswer.push(({ plan }) => {
    if (plan.userId !== userId) return false;
    world.scheduler.after(afterMs, null, () => readBalanceNow(world, machine, userId));
    return true;
  });
}

/** Charges of answers before this read must be in the balance. */
function readBalanceNow(world: World, machine: Machine, userId: string): void {
  const { gateway } = machine;
  if (gateway?.process.state !== 'running' || !gateway.isReady) return;
  const answers = world.calls.filter(
    (call) => call.plan.userId === userId && call.state === 'answered' && !hasExpiredLease(world, call),
  );
  const useBefore = currentUse(world, userId);
  const isLeased = !isLeaseEnding(world, userId);
  gateway.readBalance(userId).then(
    (balance) => {
      checkBalanceRead(world, userId, answers);
      if (isLeased && !isLeaseEnding(world, userId)) checkShownHeld(world, userId, balance, useBefore);
    },
    (error: unknown) => {
      if (!(error instanceof Problem)) throw error;
    },
  );
}

/**
 * A read asks no gateway whose lease has expired, as after a pause or while the database's clock is ahead.
 */
function hasExpiredLease({ server: { model } }: World, { plan, gateway }: CallRecord): boolean {
  return [...model.allotments.values()].some(
    (row) =>
      row.userId === plan.userId &&
      row.gatewayId === gateway.gatewayId &&
      model.leaseMsLeft(row) <= maximumDelayMs,
  );
}

/** Whether a lease of the user may expire before the read asks its gateway. */
function isLeaseEnding({ server: { model } }: World, userId: string): boolean {
  return [...model.allotments.values()].some(
    (row) => row.userId === userId && model.leaseMsLeft(row) <= maximumDelayMs,
  );
}

/** A job: its exact hold may need credits that allotments keep idle. */
function holdExactly(world: World, machine: Machine, action: Extract<Action, { kind: 'exact hold' }>): void {
  const { gateway } = machine;
  if (gateway?.process.state !== 'running' || !gateway.isReady) return;
  const { scheduler, server, coverage } = world;
  const { userId, tokenId, credits, price, forMs } = action;
  const holdId = `hold_${(world.lastId += 1)}`;
  gateway.hold({ holdId, userId, tokenId, amount: credits }).then(
    () => {
      coverage.count('exact hold');
      scheduler.after(forMs, null, () => void server.model.settleHold(holdId, price));
    },
    (error: unknown) => {
      if (!(error instanceof Problem)) throw error;
      coverage.count(`exact hold: ${error.code}`);
    },
  );
}
