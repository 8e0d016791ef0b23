// The agent's own figures, in one run against a model that answers at once: node test/bench/agent.ts
// Durable commits, the loopback guard, tokens and validation are on. The two cores are shared by agent, model and load,
// so the load of the machine is printed too: only figures of one run can be compared.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createAgentClient } from '@townhall/agent';
import { speakingGateway, startAgentProcess } from '../faults/agent-world.ts';

const rows: [string, string][] = [];
const at = (sorted: readonly number[], share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
const spread = (times: number[]) => {
  const sorted = [...times].sort((a, b) => a - b);
  return `p50 ${at(sorted, 0.5).toFixed(1)} ms, p99 ${at(sorted, 0.99).toFixed(1)} ms`;
};
async function timed(count: number, work: (index: number) => Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  for (let index = 0; index < count; index += 1) {
    const start = performance.now();
    await work(index);
    times.push(performance.now() - start);
  }
  return times;
}

const dataDir = await mkdtemp(join(tmpdir(), 'townhall-bench-'));
const quick = await speakingGateway({ chunks: 1, gapMs: 0 });
let agent = await startAgentProcess(dataDir, quick.url);
const memory = async () => Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${agent.child.pid}/status`, 'utf8'))?.[1]) / 1024;
try {
  rows.push(['start, empty data folder', `${agent.startedInMs.toFixed(0)} ms`], ['memory after the start', `${(await memory()).toFixed(0)} MB`]);
  let client = createAgentClient({ baseUrl: agent.url, token: agent.token });
  await client.sessions.execute({ instructions: 'item-0' });
  rows.push(['create, one client', spread(await timed(200, () => client.sessions.create({})))]);
  const manyMs = performance.now();
  await Promise.all(Array.from({ length: 16 }, () => timed(50, () => client.sessions.create({}))));
  rows.push(['create, 16 clients', `${Math.round(800 / ((performance.now() - manyMs) / 1_000))}/s`]);
  rows.push(['memory with 1,000 idle sessions', `${(await memory()).toFixed(0)} MB`]);
  await client.sessions.create({ id: 'turns' });
  rows.push(['one-token turn, prompt to its end', spread(await timed(50, () => client.sessions.prompt({ sessionId: 'turns', text: 'item-1' }, { headers: { prefer: 'wait=30' } })))]);
  const admitted = (await Promise.all(Array.from({ length: 100 }, async (_, index) => timed(1, () => client.sessions.prompt({ sessionId: 'turns', text: `item-${index}` }))))).flat();
  rows.push(['admission, 100 at once into one session', spread(admitted)]);
  for await (const _ of client.sessions.follow({ sessionId: 'turns', until: 'idle' }));
  rows.push(['fork of a session of 300 messages', spread(await timed(20, () => client.sessions.fork({ sessionId: 'turns' })))]);
  while ((await client.sessions.get({ sessionId: 'turns' })).headSeq < 10_000) {
    await Promise.all(Array.from({ length: 50 }, () => client.sessions.prompt({ sessionId: 'turns', text: 'item-2' })));
    for await (const _ of client.sessions.follow({ sessionId: 'turns', until: 'idle', after: (await client.sessions.get({ sessionId: 'turns' })).headSeq }));
  }
  const { headSeq } = await client.sessions.get({ sessionId: 'turns' });
  const replay = async (after: number) => {
    const start = performance.now();
    const response = await fetch(`${agent.url}/api/sdk/sessions/turns/events?until=idle&after=${after}`, { headers: { authorization: `Bearer ${agent.token}` } });
    let firstMs = 0;
    let bytes = 0;
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      firstMs ||= performance.now() - start;
      bytes += chunk.length;
    }
    return { firstMs, wholeMs: performance.now() - start, bytes };
  };
  const whole = [await replay(0), await replay(0), await replay(0)].sort((a, b) => a.wholeMs - b.wholeMs)[1];
  rows.push([`replay of ${headSeq} events`, `${whole?.wholeMs.toFixed(0)} ms, first byte ${whole?.firstMs.toFixed(1)} ms, ${((whole?.bytes ?? 0) / 1e6).toFixed(1)} MB`]);
  rows.push(['resume with 100 missed', spread(await timed(20, () => replay(headSeq - 100)))]);
  await agent.kill();
  const slow = await speakingGateway({ chunks: 200, gapMs: 20 });
  agent = await startAgentProcess(dataDir, slow.url);
  rows.push(['start with that data, after kill -9', `${agent.startedInMs.toFixed(0)} ms`]);
  client = createAgentClient({ baseUrl: agent.url, token: agent.token });
  await client.sessions.create({ id: 'chunks' });
  await client.sessions.prompt({ sessionId: 'chunks', text: 'item-7' });
  const delays: number[] = [];
  for await (const event of client.sessions.follow({ sessionId: 'chunks', until: 'idle' })) {
    if (event.type !== 'part.delta') continue;
    const sent = slow.sent.get('item-7')?.find(({ text }) => text === event.delta);
    if (sent) delays.push(performance.now() - sent.atMs);
  }
  rows.push(['chunk of the model to the client', spread(delays)]);
  await slow.close();
  console.log(`load ${loadavg().map((load) => load.toFixed(1)).join(' ')}, node ${process.version}`);
  for (const [what, figure] of rows) console.log(`${what.padEnd(44)} ${figure}`);
} finally {
  await agent.kill();
  await quick.close();
  await rm(dataDir, { recursive: true, force: true });
}
