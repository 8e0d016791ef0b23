// Kills an agent with SIGKILL at random points, twenty times, and starts it again:
//
//   node test/fault-injection/agent-kill.ts [SEED] [--kills=20] [--postgres]
//
// Each accepted item must run once or be reported as interrupted, at most 250 ms of text may be
// lost, no finished tool call may run again, and queues must resume within two seconds. With
// --postgres the agent runs on a PostgreSQL server with a lease of half a second, which counts
// towards the time to resume.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type AgentClient, createAgentClient } from '@townhall/agent';
import { startServer } from '../support/postgres-server.ts';
import { startAgentProcess, startGatewayDouble } from './agent-world.ts';
import { readSeed, seededRandom } from './random.ts';

const killsArgument = process.argv.find((argument) => argument.startsWith('--kills='));
const kills = Number(killsArgument?.slice('--kills='.length) ?? 20);
const isPostgres = process.argv.includes('--postgres');
const resumeLimitMs = 2_000;
const lostTextLimitMs = 250;
const itemsPerRound = 3;

interface AcceptedRun {
  sessionId: string;
  runId: string;
}

const random = seededRandom(readSeed());
const dataDir = await mkdtemp(join(tmpdir(), 'townhall-kill-'));
const gateway = await startGatewayDouble({ chunks: 15, gapMs: 20 });
const postgres = isPostgres ? await startServer() : undefined;
const server = postgres && { databaseUrl: postgres.url, leaseMs: 500 };
const failures: string[] = [];
const acceptedRuns = new Map<string, AcceptedRun>();
const startsMs: number[] = [];
let worstLossMs = 0;
let worstResumeMs = 0;
let agent = await startAgentProcess(dataDir, gateway.url, server);
try {
  for (let round = 1; round <= kills; round += 1) {
    const calls = sendItems(newClient(), round);
    await sleep(random() * 900);
    const killedAtMs = performance.now();
    await agent.kill();
    await calls;
    agent = await startAgentProcess(dataDir, gateway.url, server);
    startsMs.push(agent.startMs);
    const client = newClient();
    worstResumeMs = Math.max(worstResumeMs, await waitForOrphans(client, killedAtMs));
    worstLossMs = Math.max(worstLossMs, await measureLoss(client, killedAtMs));
    await checkQueues(client, round);
  }
  await checkLogs(newClient());
  const outcomes = await checkRuns(newClient());
  if (acceptedRuns.size === 0) failures.push('no item was accepted');
  if (worstLossMs > lostTextLimitMs) failures.push(`${Math.round(worstLossMs)} ms of text were lost`);
  if (worstResumeMs > resumeLimitMs) failures.push(`a queue resumed after ${Math.round(worstResumeMs)} ms`);
  printResult(outcomes);
  process.exitCode = failures.length === 0 ? 0 : 1;
} finally {
  await agent.kill();
  await gateway.close();
  await postgres?.stop();
  await rm(dataDir, { recursive: true, force: true });
}

function newClient(): AgentClient {
  return createAgentClient({ baseUrl: agent.url, token: agent.token, timeoutMs: 10_000 });
}

/** Sends items, some of them with a tool call. Resolves when each is accepted, or lost with the process. */
async function sendItems(client: AgentClient, round: number): Promise<void> {
  const sendItem = async (name: string): Promise<void> => {
    const instructions = random() < 0.5 ? `${name} WRITE:${name}` : name;
    // Only three chats, so that prompts are queued when a run is interrupted.
    const run = await client.sessions
      .execute({ chatId: `chat-${round % 3}`, instructions })
      .catch(() => undefined);
    if (run !== undefined) acceptedRuns.set(name, { sessionId: run.sessionId, runId: run.runId });
  };
  await Promise.all(
    Array.from({ length: itemsPerRound }, (_, index) =>
      sendItem(`item-${(round - 1) * itemsPerRound + index + 1}`),
    ),
  );
}

/** Waits until no run of the killed process counts as running; returns how long that took. */
async function waitForOrphans(client: AgentClient, killedAtMs: number): Promise<number> {
  const readyMs = performance.now();
  const killedAt = Date.now() - (readyMs - killedAtMs);
  const hasOrphan = async (): Promise<boolean> => {
    for (const run of acceptedRuns.values()) {
      const { status, startedAt } = await client.sessions.getRun(run);
      if (status === 'running' && Date.parse(startedAt ?? '') < killedAt) return true;
    }
    return false;
  };
  while ((await hasOrphan()) && performance.now() - readyMs < 5 * resumeLimitMs) await sleep(20);
  return performance.now() - readyMs;
}

/** How long before the kill the oldest piece of text was sent that an interrupted run has lost. */
async function measureLoss(client: AgentClient, killedAtMs: number): Promise<number> {
  const killedAt = Date.now() - (performance.now() - killedAtMs);
  let worstMs = 0;
  for (const [name, accepted] of acceptedRuns) {
    const { status, message, settledAt } = await client.sessions.getRun(accepted);
    if (status !== 'interrupted' || message === null) continue;
    if (settledAt === null || Date.parse(settledAt) <= killedAt) continue;
    const storedText = message.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('');
    const lostTimesMs = (gateway.sentPieces.get(name) ?? [])
      .filter(({ text, atMs }) => atMs < killedAtMs && !storedText.includes(text))
      .map(({ atMs }) => atMs);
    if (lostTimesMs.length > 0) worstMs = Math.max(worstMs, killedAtMs - Math.min(...lostTimesMs));
  }
  return worstMs;
}

/** A chat with queued prompts must have an active run. */
async function checkQueues(client: AgentClient, round: number): Promise<void> {
  const { items } = await client.sessions.list({ kind: 'chat' });
  for (const session of items) {
    if (session.queueLength === 0 || session.activeRunId !== null) continue;
    const { status, queueLength } = await client.sessions.get({ sessionId: session.id });
    if (status === 'idle' && queueLength > 0)
      failures.push(`round ${round}: the queue of ${session.chatId} does not resume`);
  }
}

/** Each log has no gap, and settles each run once. */
async function checkLogs(client: AgentClient): Promise<void> {
  const sessionIds = new Set([...acceptedRuns.values()].map(({ sessionId }) => sessionId));
  for (const sessionId of sessionIds) {
    const seqs: number[] = [];
    const settlements = new Map<string, number>();
    for await (const event of client.sessions.follow({ sessionId, until: 'idle' })) {
      if ('seq' in event) seqs.push(event.seq);
      if (event.type === 'run.settled') settlements.set(event.runId, (settlements.get(event.runId) ?? 0) + 1);
    }
    if (seqs.some((seq, index) => seq !== index + 1)) failures.push(`the log of ${sessionId} has a gap`);
    for (const [runId, count] of settlements)
      if (count !== 1) failures.push(`${runId} was settled ${count} times`);
  }
}

/** Each run was completed once or interrupted, and its tool ran once. Returns the runs by their status. */
async function checkRuns(client: AgentClient): Promise<Record<string, number>> {
  const outcomes: Record<string, number> = {};
  for (const [name, accepted] of acceptedRuns) {
    const { status } = await client.sessions.getRun(accepted);
    outcomes[status] = (outcomes[status] ?? 0) + 1;
    if (status !== 'completed' && status !== 'interrupted') failures.push(`${name} is ${status}`);
    const answers = gateway.prompts.filter((prompt) => prompt === name).length;
    const toolCalls = gateway.prompts.filter((prompt) => prompt === `${name} tool`).length;
    if (answers > 1 || toolCalls > 1) failures.push(`${name} was run more than once`);
    if (status !== 'completed' || toolCalls !== 1) continue;
    const file = await readFile(join(dataDir, 'workspace', `${name}.txt`), 'utf8').catch(() => '');
    if (file !== 'once') failures.push(`the tool of ${name} wrote no file`);
  }
  return outcomes;
}

function printResult(outcomes: Record<string, number>): void {
  for (const failure of failures) console.log(`FAIL ${failure}`);
  const medianStartMs = startsMs.toSorted((a, b) => a - b)[Math.floor(kills / 2)] ?? 0;
  console.log(
    [
      `${isPostgres ? 'postgres' : 'embedded'}: ${kills} kills, ${acceptedRuns.size} accepted`,
      `outcomes ${JSON.stringify(outcomes)}`,
      `at most ${Math.round(worstLossMs)} ms of text lost`,
      `resumed after at most ${Math.round(worstResumeMs)} ms`,
      `restart p50 ${Math.round(medianStartMs)} ms`,
    ].join(', '),
  );
}
