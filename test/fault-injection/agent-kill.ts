// Kills an agent with SIGKILL at random points, twenty times, and starts it again:
//
//   node test/fault-injection/agent-kill.ts [SEED] [--kills=20] [--postgres]
//
// With --postgres it has a server of our own and a lease of half a second, which counts into the time
// of going on. Each accepted item has to have run once or to be reported interrupted, at most 250 ms of
// text may be lost, no finished tool call may run again, and the queue has to go on within two seconds.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createAgentClient } from '@townhall/agent';
import { startServer } from '../support/postgres-server.ts';
import { chance, readSeed, speakingGateway, startAgentProcess, type AgentProcess } from './agent-world.ts';

const kills = Number(
  process.argv.find((word) => word.startsWith('--kills='))?.slice('--kills='.length) ?? 20,
);
const isPostgres = process.argv.includes('--postgres');
const goOnMs = 2_000;
const lostTextMs = 250;
const random = chance(readSeed());
const dataDir = await mkdtemp(join(tmpdir(), 'townhall-kill-'));
const gateway = await speakingGateway({ chunks: 15, gapMs: 20 });
const postgres = isPostgres ? await startServer() : undefined;
const server = postgres && { databaseUrl: postgres.url, leaseMs: 500 };
const failures: string[] = [];
let agent: AgentProcess | undefined;
const acceptedRuns = new Map<string, { sessionId: string; runId: string }>();
const startsMs: number[] = [];
let worstLossMs = 0;
let worstGoOnMs = 0;
try {
  agent = await startAgentProcess(dataDir, gateway.url, server);
  let item = 0;
  for (let round = 1; round <= kills; round += 1) {
    const client = createAgentClient({ baseUrl: agent.url, token: agent.token, timeoutMs: 10_000 });
    const processes = Array.from({ length: 3 }, () => {
      item += 1;
      const name = `item-${item}`;
      const text = random() < 0.5 ? `${name} WRITE:${name}` : name;
      // Some into one chat, so that a queue stands behind what is cut.
      const call = client.sessions.execute({ chatId: `chat-${round % 3}`, instructions: text });
      return call.then(
        ({ sessionId, runId }) => void acceptedRuns.set(name, { sessionId, runId }),
        () => {},
      );
    });
    await new Promise((resolve) => setTimeout(resolve, random() * 900));
    const killedAtMs = performance.now();
    const killedAt = Date.now();
    await agent.kill();
    await Promise.all(processes);
    agent = await startAgentProcess(dataDir, gateway.url, server);
    startsMs.push(agent.startedInMs);
    const readyMs = performance.now();
    const next = createAgentClient({ baseUrl: agent.url, token: agent.token });
    // A run that still runs and started before the kill was left behind by the killed process.
    const isLeftBehind = async () => {
      for (const { sessionId, runId } of acceptedRuns.values()) {
        const { status, startedAt } = await next.sessions.getRun({ sessionId, runId });
        if (status === 'running' && Date.parse(startedAt ?? '') < killedAt) return true;
      }
      return false;
    };
    while ((await isLeftBehind()) && performance.now() - readyMs < 5 * goOnMs)
      await new Promise((resolve) => setTimeout(resolve, 20));
    worstGoOnMs = Math.max(worstGoOnMs, performance.now() - readyMs);
    for (const [name, { sessionId, runId }] of acceptedRuns) {
      const run = await next.sessions.getRun({ sessionId, runId });
      if (run.status === 'interrupted' && run.message !== null) {
        const pieces = gateway.sent.get(name) ?? [];
        const storedText = run.message.parts
          .flatMap((part) => (part.type === 'text' ? [part.text] : []))
          .join('');
        const lostPieces = pieces.filter(({ text, atMs }) => atMs < killedAtMs && !storedText.includes(text));
        const lossMs =
          lostPieces.length === 0 ? 0 : killedAtMs - Math.min(...lostPieces.map(({ atMs }) => atMs));
        worstLossMs = Math.max(
          worstLossMs,
          run.settledAt !== null && Date.parse(run.settledAt) > Date.now() - (performance.now() - killedAtMs)
            ? lossMs
            : 0,
        );
      }
    }
    const { items } = await next.sessions.list({ kind: 'chat' });
    for (const session of items) {
      if (session.queueLength === 0 && session.activeRunId === null) continue;
      if (session.activeRunId !== null) continue;
      const { status, queueLength } = await next.sessions.get({ sessionId: session.id });
      if (status === 'idle' && queueLength > 0)
        failures.push(`round ${round}: the queue of ${session.chatId} stands still`);
    }
  }
  const client = createAgentClient({ baseUrl: agent.url, token: agent.token });
  const sessions = new Set([...acceptedRuns.values()].map(({ sessionId }) => sessionId));
  for (const sessionId of sessions) {
    const seqs: number[] = [];
    const settledRuns = new Map<string, number>();
    for await (const event of client.sessions.follow({ sessionId, until: 'idle' })) {
      if ('seq' in event) seqs.push(event.seq);
      if (event.type === 'run.settled') settledRuns.set(event.runId, (settledRuns.get(event.runId) ?? 0) + 1);
    }
    if (seqs.some((seq, index) => seq !== index + 1)) failures.push(`the log of ${sessionId} has a gap`);
    for (const [runId, times] of settledRuns)
      if (times !== 1) failures.push(`${runId} was settled ${times} times`);
  }
  const outcomes: Record<string, number> = {};
  for (const [name, { sessionId, runId }] of acceptedRuns) {
    const run = await client.sessions.getRun({ sessionId, runId });
    outcomes[run.status] = (outcomes[run.status] ?? 0) + 1;
    if (run.status !== 'completed' && run.status !== 'interrupted') failures.push(`${name} is ${run.status}`);
    const answers = gateway.prompts.filter((prompt) => prompt === name).length;
    const tools = gateway.prompts.filter((prompt) => prompt === `${name} tool`).length;
    if (answers > 1 || tools > 1) failures.push(`${name} was run more than once`);
    if (
      run.status === 'completed' &&
      tools === 1 &&
      (await readFile(join(dataDir, 'workspace', `${name}.txt`), 'utf8').catch(() => '')) !== 'once'
    )
      failures.push(`the tool of ${name} has left nothing`);
  }
  if (worstLossMs > lostTextMs) failures.push(`${Math.round(worstLossMs)} ms of text were lost`);
  if (worstGoOnMs > goOnMs) failures.push(`a queue went on after ${Math.round(worstGoOnMs)} ms`);
  for (const fault of failures) console.log(`FAIL ${fault}`);
  const sortedStarts = [...startsMs].sort((a, b) => a - b);
  console.log(
    `${isPostgres ? 'postgres' : 'embedded'}: ${kills} kills, ${acceptedRuns.size} accepted, outcomes ${JSON.stringify(outcomes)}, at most ${Math.round(worstLossMs)} ms of text lost, gone on after at most ${Math.round(worstGoOnMs)} ms, restart p50 ${Math.round(sortedStarts[Math.floor(kills / 2)] ?? 0)} ms`,
  );
  process.exitCode = failures.length === 0 ? 0 : 1;
} finally {
  await agent?.kill();
  await gateway.close();
  await postgres?.stop();
  await rm(dataDir, { recursive: true, force: true });
}
