// The database as one gateway process sees it: the model store behind a network that
// delays, loses and doubles messages.
import { Problem } from '../../src/kernel/problem.ts';
import type {
  AllotmentRow,
  AllotmentStore,
  GiveBackRequest,
} from '../../src/gateway/credits/allotments/store.ts';
import type { Coverage } from './coverage.ts';
import type { Random } from './random.ts';
import type { Process, Scheduler } from './scheduler.ts';
import type { StoreModel } from './store-model.ts';

/** The database server and the network in front of it, shared by all gateways. */
export interface DatabaseServer {
  model: StoreModel;
  /** Owns the events in which statements are executed. */
  process: Process;
  isUp: boolean;
  /** Grows with each stop; statements in progress are lost then. */
  starts: number;
  upSinceMs: number;
  /** How far its clock is ahead of the world's. */
  clockAheadMs: number;
  /** Probabilities of message faults, all 0 in quiet times. */
  messageFaults: MessageFaults;
}

export interface MessageFaults {
  slow: number;
  requestLost: number;
  answerLost: number;
  /** The client loses its connection, and the statement runs later. */
  delayedCommit: number;
  doubled: number;
}

export const noFaults: MessageFaults = {
  slow: 0,
  requestLost: 0,
  answerLost: 0,
  delayedCommit: 0,
  doubled: 0,
};

export interface DatabaseLinkOptions {
  server: DatabaseServer;
  scheduler: Scheduler;
  random: Random;
  process: Process;
  coverage: Coverage;
  /** Whether the connection of this process is cut. */
  isCut: () => boolean;
  onDisconnect(): void;
  /** Called with every statement whose outcome is unknown. */
  onError(): void;
  trace: ((line: string) => void) | null;
}

// Above the deadline of src/kernel/data/database.ts an answer counts as lost.
const deadlineMs = 6_000;

const statementsOfCalls = new Set(['allot', 'recall', 'affordable', 'giveBack', 'hold', 'balance']);

export type Send = <T>(name: string, statement: () => T) => Promise<T>;

/**
 * Sends one statement. Rejects with 503 `database_unavailable` when its outcome is
 * unknown, and with the error of the statement when the data refuses it.
 */
export function createDatabaseLink(options: DatabaseLinkOptions): Send {
  const { server, scheduler, random, process, coverage, isCut } = options;
  const isLost = (starts: number): boolean => !server.isUp || server.starts !== starts || isCut();
  const disconnect = (name: string, reject: (error: Problem) => void): void => {
    options.onError();
    // Maintenance sends a statement at least every five seconds and notices a lost connection;
    // statements of calls do not report it.
    if (!statementsOfCalls.has(name)) options.onDisconnect();
    reject(databaseUnavailable());
  };

  /** The statement runs later, and its answer is lost. */
  function executeLater<T>(delayMs: number, statement: () => T): void {
    const { starts } = server;
    scheduler.after(delayMs, server.process, () => {
      if (!isLost(starts)) execute(statement);
    });
  }

  return (name, statement) =>
    new Promise((resolve, reject) => {
      const { starts, messageFaults } = server;
      const fail = (delayMs: number): void =>
        void scheduler.after(delayMs, process, () => disconnect(name, reject));
      coverage.count(`statement ${name}`);
      const log = (text: string): void => options.trace?.(`${process.name} ${name}: ${text}`);
      if (isLost(starts)) return fail(random.between(0, 5));

      const fault = drawFault(messageFaults, random);
      if (fault !== null) coverage.count(`message ${fault}`);
      if (fault !== null) log(fault);
      const requestMs = latencyMs(fault, random);
      if (fault === 'requestLost') return fail(random.between(1, deadlineMs));
      if (fault === 'delayedCommit') {
        fail(random.between(1, 50));
        return executeLater(random.between(20, 4_000), statement);
      }
      if (fault === 'doubled') executeLater(requestMs + random.between(0, 2_000), statement);

      scheduler.after(requestMs, server.process, () => {
        if (isLost(starts)) return fail(random.between(0, 10));
        const answer = execute(statement);
        if (options.trace !== null) log(describeAnswer(answer));
        const answerMs = latencyMs(fault, random);
        if (fault === 'answerLost' || requestMs + answerMs > deadlineMs)
          return fail(random.between(1, deadlineMs));
        scheduler.after(answerMs, process, () => {
          if (isLost(starts)) disconnect(name, reject);
          else if (answer instanceof Problem) reject(answer);
          else resolve(answer);
        });
      });
    });
}

/** The answer of the statement, or the error with which the data refuses it. */
function execute<T>(statement: () => T): T | Problem {
  try {
    return statement();
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
}

/** Statements of the model with a check. */
export interface CheckedStatements {
  allot: StoreModel['allot'];
  /** Called when the statement is sent; what it returns runs in the database. */
  sendGiveBack(requests: readonly GiveBackRequest[]): () => (AllotmentRow | null)[];
  onTakeBack(): void;
}

/** The store of allotments over the link. */
export function allotmentStoreModel(
  send: Send,
  model: StoreModel,
  { allot, sendGiveBack, onTakeBack }: CheckedStatements,
): AllotmentStore {
  return {
    allot: (request) => send('allot', () => allot(request)),
    giveBack: (requests) => send('giveBack', sendGiveBack(requests)),
    ofGateway: (gatewayId) => send('ofGateway', () => model.ofGateway(gatewayId)),
    read: (allotmentIds) => send('read', () => model.read(allotmentIds)),
    renew: (gatewayId, reports, leaseMs) => send('renew', () => model.renew(gatewayId, reports, leaseMs)),
    recall: (request) => send('recall', () => model.recall(request)),
    report: (gatewayId, reports, answerNumber) =>
      send('report', () => model.report(gatewayId, reports, answerNumber)),
    askReports: (gatewayId, userId) => send('askReports', () => model.askReports(gatewayId, userId)),
    answeredReports: (gatewayIds) => send('answeredReports', () => model.answeredReports(gatewayIds)),
    flags: (gatewayId) => send('flags', () => model.flags(gatewayId)),
    close: (scope) => send('close', () => model.close(scope)),
    affordable: (request) => send('affordable', () => model.affordable(request)),
    applyCharges: (batch) => send('applyCharges', () => model.applyCharges(batch)),
    appliedSeqs: (journalIds) => send('appliedSeqs', () => model.appliedSeqs(journalIds)),
    openJournal: (journalId, generation) =>
      send('openJournal', () => model.openJournal(journalId, generation)),
    takeBackExpired: (limit) =>
      send('takeBackExpired', () => {
        const rows = model.takeBackExpired(limit);
        if (rows.length > 0) onTakeBack();
        return rows;
      }),
    generation: () => send('generation', () => model.generation()),
    listAllotments: () => send('listAllotments', () => []),
    dropOld: () => send('dropOld', () => 0),
  };
}

function describeAnswer(answer: unknown): string {
  return answer instanceof Problem
    ? answer.message
    : (JSON.stringify(answer, (_key, value: unknown) =>
        typeof value === 'bigint' ? Number(value) : value,
      ) ?? '');
}

function drawFault(rates: MessageFaults, random: Random): keyof MessageFaults | null {
  let draw = random.next();
  for (const name of ['slow', 'requestLost', 'answerLost', 'delayedCommit', 'doubled'] as const) {
    draw -= rates[name];
    if (draw < 0) return name;
  }
  return null;
}

function latencyMs(fault: keyof MessageFaults | null, random: Random): number {
  return fault === 'slow' ? random.between(10, 4_000) : random.between(0, 3);
}

function databaseUnavailable(): Problem {
  return new Problem('unavailable', 'database_unavailable', 'The database is unavailable at the moment.');
}
