// Starts gateway processes: the real ledger of src/gateway/credits/allotments on models of
// the database and the journal.
import type { Log } from '../../src/kernel/log.ts';
import type { askReports } from '../../src/gateway/credits/allotments/ask-reports.ts';
import type { holdWithRecall } from '../../src/gateway/credits/allotments/hold-with-recall.ts';
import type { openAllotments } from '../../src/gateway/credits/allotments/open-allotments.ts';
import type { insufficientCredits } from '../../src/gateway/credits/allotments/problems.ts';
import type { AllotmentRow, AllotmentStore } from '../../src/gateway/credits/allotments/store.ts';
import { allotmentStoreModel, createDatabaseLink } from './database-link.ts';
import { allotInTurn, giveBackAllIdle } from './checked-statements.ts';
import { checkLease } from './invariants.ts';
import { journalDirectoryModel } from './journal-model.ts';
import type { Process } from './scheduler.ts';
import type { HoldRow } from './store-model.ts';
import { createVirtualClock } from './virtual-clock.ts';
import { fail, type Gateway, type Machine, type World } from './world.ts';

/** The modules under test; with a planted bug they are loaded from a changed source. */
export interface LedgerModules {
  openAllotments: typeof openAllotments;
  holdWithRecall: typeof holdWithRecall;
  askReports: typeof askReports;
  insufficientCredits: typeof insufficientCredits;
}

const restartMs = 500;
/** A hold that nothing settles is settled without a price after this time, when its lease expires. */
export const holdLeaseMs = 45_000;

/** Starts a process on the machine unless it has one. Repeats a failed start, as a supervisor does. */
export function startGateway(world: World, machine: Machine, modules: LedgerModules): void {
  if (machine.gateway !== null) return;
  machine.starts += 1;
  const process: Process = {
    name: `${machine.name} start ${machine.starts}`,
    state: 'running',
    suspendedMs: 0,
    wallOffsetMs: 0,
  };
  const gateway = createGateway(world, machine, process);
  machine.gateway = gateway;
  world.coverage.count('start');
  run(world, machine, gateway, modules).catch((error: unknown) => {
    if (machine.gateway !== gateway) return;
    world.coverage.count('failed start');
    if (error instanceof Error && error.name !== 'Problem') fail(world, `A start failed: ${error.stack}`);
    world.scheduler.kill(process);
    machine.gateway = null;
    world.scheduler.after(restartMs, null, () => startGateway(world, machine, modules));
  });
}

function createGateway(world: World, machine: Machine, process: Process): Gateway {
  return {
    process,
    machine,
    gatewayId: `gwy_${world.machines.indexOf(machine)}_${machine.starts}`,
    clock: createVirtualClock(world.scheduler, process),
    isReady: false,
    generation: '',
    ledger: null,
    reports: () => [],
    readBalance: () => Promise.reject(new Error('The gateway has not started.')),
    hold: () => Promise.reject(new Error('The gateway has not started.')),
    send: () => Promise.reject(new Error('The gateway has not started.')),
    close: () => Promise.resolve(),
    leases: new Map(),
    reserved: new Map(),
    disconnectedMs: world.scheduler.nowMs(),
    lastTroubleMs: world.scheduler.nowMs(),
  };
}

async function run(world: World, machine: Machine, gateway: Gateway, modules: LedgerModules): Promise<void> {
  const { scheduler, random } = world;
  const { clock, gatewayId, process } = gateway;
  const store = observeLeases(world, gateway, openStore(world, machine, gateway));
  const directory = journalDirectoryModel({
    disk: machine.disk,
    process,
    scheduler,
    random,
    journalId: gatewayId,
    onAppend: (line) => {
      if (line.kind === 'sent' && line.allotmentId !== null) checkLease(world, gateway, line.allotmentId);
    },
  });
  const makeId = (prefix: string): string => `${prefix}_${(world.lastId += 1)}`;
  const allotments = await modules.openAllotments({
    store,
    directory,
    // The schedule closes revoked tokens.
    findEndedTokens: async () => [],
    clock,
    makeId,
    log: countingLog(world, gateway),
    isAlone: world.machines.length === 1,
    times: { readRecallsEveryMs: 400 },
  });
  const { ledger } = allotments;
  gateway.generation = world.server.model.generationId;
  gateway.reports = () => ledger.pool.all();
  await allotments.start();
  gateway.ledger = ledger;
  gateway.readBalance = async (userId) => {
    await Promise.all([ledger.report(userId), modules.askReports({ store, clock, gatewayId, userId })]);
    return gateway.send('balance', () => world.server.model.balance(userId));
  };
  gateway.close = () => allotments.close();
  gateway.hold = (hold) =>
    modules.holdWithRecall(hold, () => writeHold(world, gateway, hold, modules), {
      allotments,
      store,
      clock,
      makeId,
      times: { recallMs: 1_000, recallPollMs: 50 },
    });
  gateway.isReady = true;
}

/** A statement that writes an exact hold, or throws 402. */
async function writeHold(
  world: World,
  gateway: Gateway,
  hold: HoldRow,
  modules: LedgerModules,
): Promise<void> {
  const { model } = world.server;
  const isHeld = await gateway.send('hold', () => {
    if (model.holds.has(hold.holdId)) return true;
    world.scheduler.after(holdLeaseMs, null, () => void model.settleHold(hold.holdId, 0n));
    return model.hold(hold);
  });
  if (!isHeld) throw modules.insufficientCredits(hold.amount, model.available(hold.userId, hold.tokenId));
}

function openStore(world: World, machine: Machine, gateway: Gateway): AllotmentStore {
  const { server, scheduler, random, coverage } = world;
  gateway.send = createDatabaseLink({
    server,
    scheduler,
    random,
    process: gateway.process,
    coverage,
    isCut: () => machine.cutUntilMs > scheduler.nowMs(),
    onDisconnect: () => void (gateway.disconnectedMs = scheduler.nowMs()),
    onError: () => void (gateway.lastTroubleMs = scheduler.nowMs()),
    trace: world.trace,
  });
  return allotmentStoreModel(gateway.send, server.model, {
    allot: (request) => allotInTurn(world, request),
    sendGiveBack: (requests) => giveBackAllIdle(world, gateway, requests),
    onTakeBack: () => checkTakeBack(world, gateway),
  });
}

/**
 * Only a gateway that was connected for a minute, to a database that was up for a
 * minute, takes allotments back.
 */
function checkTakeBack(world: World, gateway: Gateway): void {
  world.coverage.count('take-back');
  const sinceMs = Math.max(gateway.disconnectedMs, world.server.upSinceMs);
  if (world.scheduler.nowMs() - sinceMs < 60_000)
    fail(
      world,
      `${gateway.gatewayId} took allotments back ${world.scheduler.nowMs() - sinceMs} ms after an outage`,
    );
}

/** Records when each request that renews a lease was sent. */
function observeLeases(world: World, gateway: Gateway, store: AllotmentStore): AllotmentStore {
  const { scheduler, coverage } = world;
  const renew = (row: AllotmentRow | null, sentMs: number): void => {
    if (row !== null)
      gateway.leases.set(row.allotmentId, Math.max(sentMs, gateway.leases.get(row.allotmentId) ?? sentMs));
  };
  return {
    ...store,
    async allot(request) {
      const sentMs = scheduler.nowMs();
      const answer = await store.allot(request);
      coverage.count(`allot ${answer.outcome}`);
      if (answer.outcome === 'granted') renew(answer.row, sentMs);
      return answer;
    },
    async renew(gatewayId, reports, leaseMs) {
      const sentMs = scheduler.nowMs();
      const rows = await store.renew(gatewayId, reports, leaseMs);
      if (gatewayId === gateway.gatewayId) for (const row of rows) renew(row, sentMs);
      return rows;
    },
    async applyCharges(batch) {
      const answer = await store.applyCharges(batch);
      coverage.count(`apply ${answer.outcome}`);
      for (const { overrun, isLate } of answer.results) {
        if (overrun > 0n) coverage.count('overrun');
        if (isLate) coverage.count('late charge');
      }
      return answer;
    },
    async giveBack(requests) {
      const rows = await store.giveBack(requests);
      coverage.count(requests.some(({ end }) => end) ? 'give-back that ends' : 'give-back');
      return rows;
    },
    async flags(gatewayId) {
      const flags = await store.flags(gatewayId);
      for (const row of flags.rows) coverage.count(row.isClosed ? 'closed flag' : 'recall flag');
      return flags;
    },
  };
}

const alarms = new Map([
  ['charge_put_aside', 'charge put aside'],
  ['journal_of_other_generation', 'journal of another generation'],
]);

/** Counts the lines of the log: they name the branches of the ledger. */
function countingLog(world: World, gateway: Gateway): Log {
  const write =
    (level: string) =>
    (fields: object, message: string): void => {
      world.coverage.count(`log: ${message}`);
      const alarm = 'alarm' in fields ? fields.alarm : undefined;
      if (typeof alarm === 'string') world.coverage.count(alarms.get(alarm) ?? `alarm ${alarm}`);
      if ('charges_to' in fields) world.coverage.count('replay of a dead process');
      if (alarm === 'other_generation') world.restart(gateway);
      world.trace?.(`${gateway.gatewayId} ${level}: ${message} ${describe(fields)}`);
    };
  const log: Log = {
    debug: write('debug'),
    info: write('info'),
    warn: write('warn'),
    error: write('error'),
    child: () => log,
  };
  return log;
}

function describe(fields: object): string {
  return JSON.stringify(fields, (key, value: unknown) => {
    if (typeof value === 'bigint') return String(value);
    return key === 'err' && value instanceof Error ? value.message : value;
  });
}
