// Drops the connection of an event stream at a random byte, fifty times during one run, and
// reconnects. All received events together must be the complete log: in order, and each event once.
//
//   node test/fault-injection/agent-connection.ts [SEED]
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { request, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createAgentClient } from '@townhall/agent';
import { startAgentProcess, startGatewayDouble, type AgentProcess } from './agent-world.ts';
import { readSeed, seededRandom } from './random.ts';

const drops = 50;
const sessionId = 'dropped';
const maximumBytes = 3_000;

interface StreamEvent {
  type: string;
  seq?: number;
  text?: string;
  offset?: number;
  delta?: string;
}

/** What the reader has received of the session over all connections so far. */
interface Reader {
  sequences: number[];
  text: string;
  isOver: boolean;
}

const random = seededRandom(readSeed());
const dataDir = await mkdtemp(join(tmpdir(), 'townhall-drop-'));
const gateway = await startGatewayDouble({ chunks: 250, gapMs: 20 });
const agent = await startAgentProcess(dataDir, gateway.url);
try {
  const client = createAgentClient({ baseUrl: agent.url, token: agent.token });
  await client.sessions.create({ id: sessionId });
  await client.sessions.prompt({ sessionId, text: 'item-1' });
  const reader: Reader = { sequences: [], text: '', isOver: false };
  let droppedConnections = 0;
  while (!reader.isOver) {
    // The last connection is not dropped, so that it receives the end of the run.
    const isDropped = droppedConnections < drops;
    await readPart(agent, reader, isDropped ? 1 + Math.floor(random() * maximumBytes) : Infinity);
    if (!reader.isOver) droppedConnections += 1;
  }
  const { headSeq } = await client.sessions.get({ sessionId });
  const { sequences, text } = reader;
  if (sequences.some((seq, index) => seq !== index + 1))
    throw new Error(`The events have a gap or a repetition: ${sequences.join(' ')}`);
  if (sequences.length !== headSeq)
    throw new Error(`${sequences.length} of ${headSeq} durable events were received.`);
  if (droppedConnections < drops) throw new Error(`The run was over after ${droppedConnections} drops.`);
  console.log(
    `ok: ${droppedConnections} drops, ${headSeq} durable events in order and each once, ` +
      `${text.length} characters of text`,
  );
} finally {
  await agent.kill();
  await gateway.close();
  await rm(dataDir, { recursive: true, force: true });
}

/** Reads at most this many bytes of the stream after the last event of the reader, then disconnects. */
async function readPart({ url, token }: AgentProcess, reader: Reader, bytes: number): Promise<void> {
  const lastSeq = reader.sequences.at(-1);
  const call = request(`${url}/api/sdk/sessions/${sessionId}/events`, {
    headers: {
      authorization: `Bearer ${token}`,
      ...(lastSeq === undefined ? {} : { 'last-event-id': String(lastSeq) }),
    },
  });
  call.on('error', () => {});
  call.end();
  const [response] = (await once(call, 'response')) as [IncomingMessage];
  if (response.statusCode !== 200) throw new Error(`The answer is ${response.statusCode}.`);
  response.on('error', () => {});
  let remainingBytes = bytes;
  let pendingBytes = Buffer.alloc(0);
  for await (const chunk of response as AsyncIterable<Buffer>) {
    const part = chunk.subarray(0, Math.min(chunk.length, remainingBytes));
    remainingBytes -= part.length;
    pendingBytes = Buffer.concat([pendingBytes, part]);
    for (let end = pendingBytes.indexOf('\n\n'); end >= 0; end = pendingBytes.indexOf('\n\n')) {
      const data = /^data: (.*)$/m.exec(pendingBytes.subarray(0, end).toString('utf8'))?.[1];
      pendingBytes = pendingBytes.subarray(end + 2);
      if (data !== undefined) apply(reader, JSON.parse(data) as StreamEvent);
    }
    if (remainingBytes === 0 || reader.isOver) break;
  }
  call.destroy();
}

function apply(reader: Reader, { type, seq, text, offset = 0, delta = '' }: StreamEvent): void {
  if (seq !== undefined) reader.sequences.push(seq);
  if (type === 'part.snapshot') reader.text = text ?? '';
  if (type === 'part.delta') {
    if (offset > reader.text.length)
      throw new Error(`A delta begins at ${offset}, after a text of ${reader.text.length} characters.`);
    reader.text = reader.text.slice(0, offset) + delta;
  }
  if (type === 'part.ended' && text !== reader.text)
    throw new Error('The deltas of the part do not add up to its text.');
  if (type === 'run.settled') reader.isOver = true;
}
