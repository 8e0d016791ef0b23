// Runs one schedule: carries out its actions, checks the promises after each step,
// then ends all faults and waits until everything is applied and given back.
import { act, endProcess } from './actions.ts';
import { startCall } from './clients.ts';
import type { Coverage } from './coverage.ts';
import { noFaults } from './database-link.ts';
import { startGateway, type LedgerModules } from './gateway.ts';
import { checkQuiet, checkStep } from './invariants.ts';
import type { JournalFolder } from './journal-model.ts';
import type { Schedule } from './schedule.ts';
import { createWorld, fail, type Gateway, type World } from './world.ts';

export interface SimulationResult {
  steps: number;
  /** Virtual time. */
  durationMs: number;
  failure: string | null;
}

export interface SimulationOptions {
  schedule: Schedule;
  modules: LedgerModules;
  coverage?: Coverage;
  trace?: (line: string) => void;
}

/**
 * Longest time until everything is applied and given back, with a minute to spare: the allotments of a lost
 * machine can be taken back 60 s after their last renewal, by a gateway that has reached the database for
 * 60 s and tries once a minute.
 */
const quietMs = 240_000;
const maximumSteps = 50_000;
const maximumChain = 16;
const ready = Promise.resolve();

export async function simulate({
  schedule,
  modules,
  coverage,
  trace,
}: SimulationOptions): Promise<SimulationResult> {
  const world = createWorld(schedule, trace ?? null, coverage);
  world.restart = (gateway) => {
    const { machine } = gateway;
    world.scheduler.after(100, null, () => {
      if (machine.gateway === gateway) endProcess(world, machine, 'kill');
      startGateway(world, machine, modules);
    });
  };
  for (const machine of world.machines) startGateway(world, machine, modules);
  for (const { atMs, action } of schedule.actions)
    // The gateways take a few milliseconds to start.
    world.scheduler.after(20 + atMs, null, () => act(world, action, modules));
  const lastMs = 20 + (schedule.actions.at(-1)?.atMs ?? 0);
  let steps = await run(world, lastMs, () => false);
  if (world.failure === null) {
    endFaults(world, modules);
    steps += await run(world, lastMs + quietMs, () => isQuiet(world));
  }
  if (world.failure === null && !isQuiet(world)) fail(world, describeUnfinished(world));
  if (world.failure === null) checkQuiet(world);
  if (world.failure === null && schedule.seed % 4 === 0) steps += await spendTheRest(world);
  return { steps, durationMs: world.scheduler.nowMs(), failure: world.failure };
}

/** Runs until `untilMs`, or until `isDone` returns true. Returns the number of steps. */
async function run(world: World, untilMs: number, isDone: () => boolean): Promise<number> {
  const { scheduler, server } = world;
  let steps = 0;
  while (world.failure === null && !isDone()) {
    const event = scheduler.step(untilMs);
    if (event === null) break;
    steps += 1;
    if (steps > maximumSteps) fail(world, 'The schedule does not come to an end');
    // A statement sends its answer as an event of its own: no promise callback is ready.
    if (event.process !== server.process) await drain();
    checkStep(world, event.process);
  }
  return steps;
}

/**
 * Checks that all remaining credits can be spent in one call, although every gateway holds some of
 * them idle.
 */
async function spendTheRest(world: World): Promise<number> {
  const { scheduler, server, schedule, coverage } = world;
  const user = schedule.users[0];
  const token = user?.tokens.at(-1);
  const machine = world.machines[0];
  if (user === undefined || token === undefined || machine === undefined) return 0;
  const base = { kind: 'call', userId: user.userId, tokenId: token.tokenId, ...restCall } as const;
  const availableCredits = (): bigint => server.model.available(user.userId, token.tokenId);
  // A journal that failed tries again every five seconds.
  let steps = await run(world, scheduler.nowMs() + 5_000, () => false);
  const bound = availableCredits() / 20n;
  for (const [index, other] of world.machines.entries())
    startCall(world, other, { ...base, machine: index, requestId: `rest_${index}`, bound, price: 0n });
  steps += await run(world, scheduler.nowMs() + 1_500, () => false);
  const freeCredits = [...server.model.allotments.values()].reduce(
    (sum, { tokenId, amount }) => (tokenId === token.tokenId ? sum + amount : sum),
    availableCredits(),
  );
  if (freeCredits <= 0n || world.failure !== null) return steps;
  coverage.count('spend the rest');
  startCall(world, machine, {
    ...base,
    machine: 0,
    requestId: 'rest_last',
    bound: freeCredits,
    price: freeCredits,
  });
  steps += await run(world, scheduler.nowMs() + quietMs, () => isQuiet(world));
  const lastCall = world.calls.find(({ plan }) => plan.requestId === 'rest_last');
  if (lastCall?.state !== 'answered')
    fail(world, `The rest of ${freeCredits} credits could not be spent: ${lastCall?.state}`);
  if (world.failure === null) checkQuiet(world);
  return steps;
}

const restCall = {
  inputCredits: 0n,
  sendMs: 0,
  answerMs: 20,
  checkpoints: 0,
  raiseTo: null,
  attempts: 1,
  end: 'settle',
  isRefused: false,
} as const;

/** Runs the promise callbacks that are ready. Chains of them are shorter than `maximumChain`. */
async function drain(): Promise<void> {
  for (let turn = 0; turn < maximumChain; turn += 1) await ready;
}

/**
 * Ends all faults and brings every machine back. From here on, all charges must be applied and idle
 * credits returned.
 */
function endFaults(world: World, modules: LedgerModules): void {
  const { server, scheduler, machines } = world;
  world.isQuiet = true;
  server.messageFaults = noFaults;
  if (!server.isUp) server.upSinceMs = scheduler.nowMs();
  server.isUp = true;
  for (const machine of machines) {
    machine.cutUntilMs = 0;
    machine.disk.isFailing = false;
    startGateway(world, machine, modules);
    if (machine.gateway !== null) scheduler.resume(machine.gateway.process);
  }
}

function isQuiet(world: World): boolean {
  const { model } = world.server;
  if (world.openCalls.size > 0) return false;
  for (const { held } of model.accounts.values()) if (held > 0n) return false;
  return world.machines.every(
    ({ gateway, disk }) =>
      gateway?.isReady === true &&
      isUnused(gateway) &&
      [...disk.folders.values()].every((folder) => isApplied(world, folder)),
  );
}

function isUnused(gateway: Gateway): boolean {
  for (const { reserved, unapplied } of gateway.reports()) if (reserved > 0n || unapplied > 0n) return false;
  return true;
}

function isApplied(
  { server, machines }: World,
  { journalId, generation, lines, state }: JournalFolder,
): boolean {
  if (state !== 'present') return true;
  const isLive = machines.some(({ gateway }) => gateway?.gatewayId === journalId);
  // A journal of another generation counts as not applied until it is put aside.
  if (generation !== server.model.generationId) return false;
  const appliedSeq = server.model.journals.get(journalId)?.appliedSeq ?? 0;
  const lastSeq = lines.at(-1)?.seq ?? 0;
  return (
    lastSeq <= appliedSeq ||
    !lines.some(
      ({ seq, line }) => seq > appliedSeq && (line.kind === 'final' || (!isLive && line.kind === 'sent')),
    )
  );
}

function describeUnfinished(world: World): string {
  const { model } = world.server;
  const lines = [...world.openCalls].map(({ plan, state }) => `${plan.requestId} is ${state}`);
  for (const { allotmentId, gatewayId, amount, leaseUntilMs } of model.allotments.values())
    lines.push(`${allotmentId} of ${gatewayId} has ${amount} credits, leased until ${leaseUntilMs} ms`);
  for (const { name, gateway, disk } of world.machines) {
    for (const { allotmentId, reserved, unapplied } of gateway?.reports() ?? [])
      lines.push(`${allotmentId} in memory: ${reserved} reserved, ${unapplied} unapplied`);
    if (gateway?.isReady !== true) lines.push(`${name} has no gateway`);
    for (const folder of disk.folders.values())
      if (!isApplied(world, folder)) lines.push(`${folder.journalId} is not applied`);
  }
  return `Not everything was applied and given back: ${lines.join('; ')}`;
}
