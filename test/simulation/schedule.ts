// A schedule: the users, the machines, and the actions of clients, operators and faults with
// their times. It is drawn from a seed and is plain data, so that a failing one can be shrunk.
import type { MessageFaults } from './database-link.ts';
import { type Random, seededRandom } from './random.ts';

export interface Schedule {
  seed: number;
  machines: number;
  users: UserPlan[];
  actions: TimedAction[];
}

export interface UserPlan {
  userId: string;
  credits: bigint;
  tokens: { tokenId: string; cap: bigint | null }[];
}

export interface TimedAction {
  atMs: number;
  action: Action;
}

export interface CallPlan {
  kind: 'call';
  requestId: string;
  machine: number;
  userId: string;
  tokenId: string;
  bound: bigint;
  /** Price of the answer; above the bound in a few calls. */
  price: bigint;
  inputCredits: bigint;
  /** Time from the reservation to the request upstream. */
  sendMs: number;
  /** Time from the request to the end of the answer. */
  answerMs: number;
  checkpoints: number;
  /** New bound when a more expensive fallback replaces the model before the first attempt; null: none. */
  raiseTo: bigint | null;
  attempts: number;
  end: 'settle' | 'settle twice' | 'release';
  /** The database refuses the charge, as it would a value out of range. */
  isRefused: boolean;
}

export type Action =
  | CallPlan
  | { kind: 'kill'; machine: number; restartMs: number }
  | { kind: 'power cut'; machine: number; restartMs: number }
  | { kind: 'shutdown'; machine: number; restartMs: number }
  | { kind: 'stop'; machine: number; forMs: number }
  | { kind: 'suspend'; machine: number; forMs: number }
  | { kind: 'wall clock jump'; machine: number; byMs: number }
  | { kind: 'disk failure'; machine: number; forMs: number }
  | { kind: 'disk loss'; machine: number }
  | { kind: 'network cut'; machine: number; forMs: number }
  | { kind: 'balance read'; machine: number; userId: string; afterMs: number }
  | { kind: 'message faults'; faults: MessageFaults; forMs: number }
  | { kind: 'database stop'; forMs: number; clockAheadMs: number }
  | { kind: 'backup' }
  | { kind: 'restore' }
  | { kind: 'grant'; userId: string; credits: bigint }
  | { kind: 'refund'; userId: string; credits: bigint }
  | { kind: 'deduct'; userId: string; credits: bigint }
  | { kind: 'cap'; userId: string; tokenId: string; cap: bigint }
  | { kind: 'revoke'; userId: string; tokenId: string }
  | {
      kind: 'exact hold';
      machine: number;
      userId: string;
      tokenId: string;
      credits: bigint;
      price: bigint;
      forMs: number;
    };

const faultKinds = [
  'kill',
  'kill',
  'power cut',
  'shutdown',
  'stop',
  'suspend',
  'wall clock jump',
  'disk failure',
  'network cut',
  'balance read',
  'message faults',
  'message faults',
  'message faults',
  'database stop',
  'grant',
  'refund',
  'deduct',
  'cap',
  'revoke',
  'exact hold',
] as const;
const rareFaultKinds = ['disk loss', 'restore'] as const;
type FaultKind = (typeof faultKinds)[number] | (typeof rareFaultKinds)[number];

export function drawSchedule(seed: number): Schedule {
  const random = seededRandom(seed);
  const machines = random.pick([1, 2, 2, 2, 3, 3, 4]);
  const users = drawUsers(random);
  const lengthMs = random.chance(0.25) ? random.between(20_000, 100_000) : random.between(1_000, 8_000);
  const actions: TimedAction[] = [];
  const callCount = random.between(12, 40);
  for (let index = 0; index < callCount; index += 1)
    actions.push({
      atMs: random.between(0, lengthMs),
      action: drawCall(random, `req_${index}`, machines, users),
    });
  if (random.chance(0.25)) addBurst(random, machines, users, lengthMs, actions);
  const faultCount = random.pick([0, 1, 2, 3, 4, 6, 8]);
  for (let index = 0; index < faultCount; index += 1) {
    const kind = random.chance(0.06) ? random.pick(rareFaultKinds) : random.pick(faultKinds);
    const atMs = random.between(0, lengthMs);
    if (kind === 'restore') actions.push({ atMs: random.between(0, atMs), action: { kind: 'backup' } });
    const action = drawFault(random, kind, machines, users);
    actions.push({ atMs, action });
    if (action.kind === 'stop' || action.kind === 'suspend')
      addCallsAround(random, action, atMs, users, actions);
  }
  actions.sort((a, b) => a.atMs - b.atMs);
  return { seed, machines, users, actions };
}

function drawUsers(random: Random): UserPlan[] {
  const users: UserPlan[] = [];
  const userCount = random.pick([1, 1, 2, 3]);
  for (let userIndex = 0; userIndex < userCount; userIndex += 1) {
    const credits = BigInt(random.pick([60, 300, 1_000, 5_000, 50_000]));
    const tokenCount = random.chance(0.08) ? 60 : random.pick([1, 1, 2, 3]);
    users.push({
      userId: `user_${userIndex}`,
      credits,
      tokens: Array.from({ length: tokenCount }, (_, tokenIndex) => ({
        tokenId: `token_${userIndex}_${tokenIndex}`,
        cap: random.chance(0.25) ? (credits * BigInt(random.between(1, 10))) / 10n : null,
      })),
    });
  }
  return users;
}

function drawCall(random: Random, requestId: string, machines: number, users: readonly UserPlan[]): CallPlan {
  const user = random.pick(users);
  // Bounds near the balance make the gateways take credits from one another.
  const maxCredits = Number(user.credits) / random.pick([2, 4, 10, 30]);
  const bound = random.chance(0.03) ? 0n : BigInt(random.between(1, Math.max(2, Math.floor(maxCredits))));
  const isDear = random.chance(0.05);
  const price = random.chance(0.1) ? 0n : (bound * BigInt(random.between(0, 100))) / 100n;
  return {
    kind: 'call',
    requestId,
    machine: random.between(0, machines - 1),
    userId: user.userId,
    tokenId: random.pick(user.tokens).tokenId,
    bound,
    price: isDear ? bound + BigInt(random.between(1, 50)) : price,
    inputCredits: price / 10n,
    sendMs: random.between(0, 20),
    answerMs: random.chance(0.1) ? random.between(5_000, 40_000) : random.between(1, 2_000),
    checkpoints: random.chance(0.3) ? random.between(1, 4) : 0,
    raiseTo: random.chance(0.08)
      ? bound + BigInt(random.between(1, Math.max(2, Math.floor(maxCredits))))
      : null,
    attempts: random.chance(0.1) ? 2 : 1,
    isRefused: random.chance(0.004),
    end: drawEnd(random),
  };
}

function drawEnd(random: Random): CallPlan['end'] {
  if (random.chance(0.1)) return 'release';
  return random.chance(0.05) ? 'settle twice' : 'settle';
}

/**
 * Adds calls around a pause: reserved before it and sent after it, or reserved from credits idle
 * before it.
 */
function addCallsAround(
  random: Random,
  { machine, forMs }: { machine: number; forMs: number },
  atMs: number,
  users: readonly UserPlan[],
  actions: TimedAction[],
): void {
  const user = random.pick(users);
  const { tokenId } = random.pick(user.tokens);
  const times = [atMs - 400, atMs - 10, atMs + forMs, atMs + forMs + 1, atMs + forMs + 3];
  for (const [index, callMs] of times.entries()) {
    const call = drawCall(random, `req_${atMs}_${index}`, 1, [user]);
    const bound = 1n + user.credits / 100n;
    actions.push({
      atMs: Math.max(0, callMs),
      action: {
        ...call,
        machine,
        tokenId,
        bound,
        price: bound / 2n,
        sendMs: 20,
        answerMs: 50,
        raiseTo: null,
      },
    });
  }
}

/** Adds calls with many keys of one user at once, or many calls on a small balance. */
function addBurst(
  random: Random,
  machines: number,
  users: readonly UserPlan[],
  lengthMs: number,
  actions: TimedAction[],
): void {
  const atMs = random.between(0, lengthMs);
  const user = random.pick(users);
  const bound = user.credits / BigInt(random.pick([4, 12, 25]));
  for (let index = 0; index < 30; index += 1) {
    const call = drawCall(random, `req_burst_${index}`, machines, [user]);
    const token = user.tokens[index % user.tokens.length];
    if (token === undefined) continue;
    const action = { ...call, tokenId: token.tokenId, bound, price: bound, raiseTo: null };
    actions.push({ atMs: atMs + random.between(0, 3), action });
  }
}

function drawFault(random: Random, kind: FaultKind, machines: number, users: readonly UserPlan[]): Action {
  const machine = random.between(0, machines - 1);
  const user = random.pick(users);
  const { userId } = user;
  const { tokenId } = random.pick(user.tokens);
  const credits = BigInt(random.between(1, Number(user.credits)));
  switch (kind) {
    case 'kill':
    case 'power cut':
    case 'shutdown':
      return {
        kind,
        machine,
        restartMs: random.chance(0.2) ? random.between(60_000, 120_000) : random.between(0, 3_000),
      };
    case 'stop':
    case 'suspend':
      return { kind, machine, forMs: random.pick([300, 2_000, 19_000, 25_000, 65_000, 90_000]) };
    case 'wall clock jump':
      return { kind, machine, byMs: random.pick([-3_600_000, -500, 500, 1_500, 120_000]) };
    case 'disk loss':
      return { kind, machine };
    case 'disk failure':
    case 'network cut':
      return { kind, machine, forMs: random.pick([100, 2_000, 12_000, 30_000]) };
    case 'balance read':
      return { kind, machine, userId, afterMs: random.pick([0, 30]) };
    case 'message faults':
      return { kind, faults: drawMessageFaults(random), forMs: random.pick([500, 3_000, 15_000]) };
    case 'database stop':
      return {
        kind,
        forMs: random.pick([0, 200, 3_000, 25_000, 70_000]),
        clockAheadMs: random.pick([0, 0, 120_000]),
      };
    case 'restore':
      return { kind };
    case 'grant':
    case 'refund':
    case 'deduct':
      return { kind, userId, credits };
    case 'cap':
      return { kind, userId, tokenId, cap: credits };
    case 'revoke':
      return { kind, userId, tokenId };
    case 'exact hold':
      return {
        kind,
        machine,
        userId,
        tokenId,
        credits,
        price: credits / 2n,
        forMs: random.between(100, 5_000),
      };
  }
}

function drawMessageFaults(random: Random): MessageFaults {
  const faultShare = random.pick([0.02, 0.1, 0.3]);
  const rate = (): number => (random.chance(0.5) ? faultShare : 0);
  return { slow: rate(), requestLost: rate(), answerLost: rate(), delayedCommit: rate(), doubled: rate() };
}

/** One line an action. */
export function printSchedule({ machines, users, actions }: Schedule): string {
  const lines = [`${machines} machines`, ...users.map(printPlain)];
  for (const { atMs, action } of actions) lines.push(`${String(atMs).padStart(8)} ms  ${printPlain(action)}`);
  return lines.join('\n');
}

export function printPlain(value: object): string {
  const text = JSON.stringify(value, (_key, member: unknown) =>
    typeof member === 'bigint' ? Number(member) : member,
  );
  return text.replaceAll('"', '').slice(1, -1);
}
