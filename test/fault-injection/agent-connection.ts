// Drops the connection of an event stream at a random byte, fifty times during one turn, and
// reconnects: node test/fault-injection/agent-connection.ts [SEED]. The received events together
// must be the whole log, in order and each once.
import { mkdtemp, rm } from 'node:fs/promises';
import { request, type IncomingMessage } from 'node:http';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createAgentClient } from '@townhall/agent';
import { chance, readSeed, speakingGateway, startAgentProcess } from './agent-world.ts';

const drops = 50;
const random = chance(readSeed());
const dataDir = await mkdtemp(join(tmpdir(), 'townhall-drop-'));
const gateway = await speakingGateway({ chunks: 250, gapMs: 20 });
const agent = await startAgentProcess(dataDir, gateway.url);
try {
  const client = createAgentClient({ baseUrl: agent.url, token: agent.token });
  await client.sessions.create({ id: 'dropped' });
  await client.sessions.prompt({ sessionId: 'dropped', text: 'item-1' });
  const sequences: number[] = [];
  let text = '';
  let droppedConnections = 0;
  let isOver = false;
  while (!isOver) {
    const { hostname, port } = new URL(agent.url);
    const call = request({
      hostname,
      port,
      path: '/api/sdk/sessions/dropped/events',
      headers: {
        authorization: `Bearer ${agent.token}`,
        ...(sequences.length > 0 ? { 'last-event-id': String(sequences.at(-1)) } : {}),
      },
    });
    call.on('error', () => {});
    call.end();
    const [response] = (await once(call, 'response')) as [IncomingMessage];
    if (response.statusCode !== 200) throw new Error(`The answer is ${response.statusCode}.`);
    // The last connection stays, to see the end.
    let remainingBytes =
      droppedConnections < drops ? 1 + Math.floor(random() * 3_000) : Number.POSITIVE_INFINITY;
    let pendingBytes = Buffer.alloc(0);
    response.on('error', () => {});
    for await (const chunk of response as AsyncIterable<Buffer>) {
      const part = chunk.subarray(0, Math.min(chunk.length, remainingBytes));
      remainingBytes -= part.length;
      pendingBytes = Buffer.concat([pendingBytes, part]);
      for (let end = pendingBytes.indexOf('\n\n'); end >= 0; end = pendingBytes.indexOf('\n\n')) {
        const block = pendingBytes.subarray(0, end).toString('utf8');
        pendingBytes = pendingBytes.subarray(end + 2);
        const data = /^data: (.*)$/m.exec(block)?.[1];
        if (data === undefined) continue;
        const event = JSON.parse(data) as {
          type: string;
          seq?: number;
          text?: string;
          offset?: number;
          delta?: string;
          status?: string;
          queueLength?: number;
        };
        if (event.seq !== undefined) sequences.push(event.seq);
        if (event.type === 'part.snapshot') text = event.text ?? '';
        if (event.type === 'part.delta') {
          if ((event.offset ?? 0) > text.length)
            throw new Error(`A delta begins at ${event.offset}, and ${text.length} is known.`);
          text = text.slice(0, event.offset) + (event.delta ?? '');
        }
        if (event.type === 'part.ended' && event.text !== text)
          throw new Error('The text of the part is not what was told of it.');
        if (event.type === 'run.settled') isOver = true;
      }
      if (remainingBytes === 0 || isOver) break;
    }
    call.destroy();
    if (!isOver) droppedConnections += 1;
  }
  const { headSeq } = await client.sessions.get({ sessionId: 'dropped' });
  const gaps = sequences.filter((seq, index) => seq !== index + 1);
  if (gaps.length > 0) throw new Error(`The union has a gap or a repetition: ${sequences.join(' ')}`);
  if (droppedConnections < drops) throw new Error(`The turn was over after ${droppedConnections} drops.`);
  console.log(
    `ok: ${droppedConnections} drops, ${sequences.length} durable events of ${headSeq} in order and each once, ${text.length} characters of text whole`,
  );
} finally {
  await agent.kill();
  await gateway.close();
  await rm(dataDir, { recursive: true, force: true });
}
