// The world of one schedule: the database server, the machines with their disks and
// gateways, the users, and the records of the calls that clients made.
import type { Clock } from '../../src/kernel/clock.ts';
import type { Ledger } from '../../src/gateway/credits/core/ports.ts';
import type { Allotment } from '../../src/gateway/credits/allotments/allotment.ts';
import { type Coverage, createCoverage } from './coverage.ts';
import { type DatabaseServer, noFaults, type Send } from './database-link.ts';
import { createDisk, type Disk } from './journal-model.ts';
import { type Random, seededRandom } from './random.ts';
import type { CallPlan, Schedule } from './schedule.ts';
import { createScheduler, type Process, type Scheduler } from './scheduler.ts';
import { type HoldRow, type LedgerSnapshot, type ShownBalance, StoreModel } from './store-model.ts';

/** One gateway process: the real ledger on models of the database and the journal. */
export interface Gateway {
  process: Process;
  machine: Machine;
  gatewayId: string;
  clock: Clock;
  /** The start has finished: the gateway accepts calls. */
  isReady: boolean;
  /** The generation of the database when it started. */
  generation: string;
  /** Null until the start has finished. */
  ledger: Pick<Ledger, 'reserve'> | null;
  /** The counts of the process for each allotment. */
  reports(): Iterable<Allotment>;
  /** Reads a balance as `credits.getBalance` does. */
  readBalance(userId: string): Promise<ShownBalance>;
  /** Writes an exact hold; throws 402 and 503 as `reserve` does. */
  hold(hold: HoldRow): Promise<void>;
  /** The connection to the database. */
  send: Send;
  /** The effect of SIGTERM: applies charges and returns all allotments. */
  close(): Promise<void>;
  /** By allotment: when the latest request that renewed its lease was sent, in world time. */
  leases: Map<string, number>;
  /** The reserved credits by allotment at the latest check. */
  reserved: Map<string, bigint>;
  /** When a statement of its maintenance last failed. */
  disconnectedMs: number;
  /**
   * When a statement last had no answer, or the process last continued after a stop. Memory and rows may
   * differ for a while after it.
   */
  lastTroubleMs: number;
}

export interface Machine {
  name: string;
  disk: Disk;
  gateway: Gateway | null;
  /** Its connection to the database is cut until this time. */
  cutUntilMs: number;
  starts: number;
}

export type CallState =
  | 'reserving'
  | 'reserved'
  | 'settling'
  /** The client saw the whole answer. */
  | 'answered'
  | 'released'
  /** 402. */
  | 'refused'
  /** 503, or another error. */
  | 'failed'
  /** The settlement failed: the charge may still come. */
  | 'unsettled';

export interface CallRecord {
  plan: CallPlan;
  gateway: Gateway;
  machine: Machine;
  state: CallState;
  /** The reserved credits; a raise increases them. */
  amount: bigint;
  price: bigint;
  /** A 402 or 503 is allowed: holders did not answer, or others wanted the same credits. */
  mayBeRefused: boolean;
  /** At some moment of its wait there may have been enough credits. */
  mayBePaid: boolean;
  /** Another call of the account waited at the same time. */
  hasRivals: boolean;
  /** Whether a `sent` line was written. */
  isSent: boolean;
}

export interface World {
  schedule: Schedule;
  scheduler: Scheduler;
  /** Randomness of everything that is not in the schedule: latencies and message faults. */
  random: Random;
  coverage: Coverage;
  server: DatabaseServer;
  machines: Machine[];
  calls: CallRecord[];
  /** Calls of live gateways whose clients still wait. */
  openCalls: Set<CallRecord>;
  backup: LedgerSnapshot | null;
  /** Journal ids of disks that were lost. */
  lostJournals: Set<string>;
  /** The time until which a process may lack changes that the database made in an outage. */
  troubledUntilMs: number;
  /** No failure is injected any more. */
  isQuiet: boolean;
  /** The schedule has no fault and no change of a balance. */
  isCalm: boolean;
  hadClockJump: boolean;
  /** Bounds of calls by request id; a raise increases them. */
  bounds: Map<string, bigint>;
  checkedChanges: number;
  /** Number of the latest id. */
  lastId: number;
  /** Called with each answer until they return true. */
  onAnswer: ((call: CallRecord) => boolean)[];
  /** Ends the process and starts another one on its machine. */
  restart(gateway: Gateway): void;
  trace: ((line: string) => void) | null;
  failure: string | null;
}

export function createWorld(
  schedule: Schedule,
  trace: World['trace'] = null,
  coverage = createCoverage(),
): World {
  const random = seededRandom(schedule.seed ^ 0x5eed);
  const scheduler = createScheduler(random);
  const server: DatabaseServer = {
    model: new StoreModel({
      generation: 'generation-1',
      nowMs: () => scheduler.nowMs() + server.clockAheadMs,
      startedMs: () => server.upSinceMs + server.clockAheadMs,
    }),
    process: { name: 'database', state: 'running', suspendedMs: 0, wallOffsetMs: 0 },
    isUp: true,
    starts: 1,
    upSinceMs: -600_000,
    clockAheadMs: 0,
    messageFaults: noFaults,
  };
  for (const { userId, tokens, credits } of schedule.users) server.model.addUser(userId, tokens, credits);
  return {
    schedule,
    scheduler,
    random,
    coverage,
    server,
    machines: Array.from({ length: schedule.machines }, (_, index) => ({
      name: `machine ${index}`,
      disk: createDisk(),
      gateway: null,
      cutUntilMs: 0,
      starts: 0,
    })),
    calls: [],
    openCalls: new Set(),
    backup: null,
    lostJournals: new Set(),
    troubledUntilMs: 0,
    isQuiet: false,
    isCalm: schedule.actions.every(({ action }) => action.kind === 'call'),
    hadClockJump: false,
    bounds: new Map(),
    checkedChanges: -1,
    lastId: 0,
    onAnswer: [],
    restart() {},
    trace,
    failure: null,
  };
}

/** Whether the gateway runs and can reach the database. */
export function isReachable(world: World, machine: Machine): boolean {
  return (
    machine.gateway?.process.state === 'running' &&
    world.server.isUp &&
    machine.cutUntilMs <= world.scheduler.nowMs()
  );
}

/** Records a broken promise; the first one counts. */
export function fail(world: World, message: string): void {
  world.failure ??= `${message} (at ${world.scheduler.nowMs()} ms)`;
}
