// Checks an event stream against the contract: node test/contract/sse-conformance.ts URL TOKEN
// It creates a session, prompts it, and reads its events in every way that the contract names. It
// works against any server that has the contract. Prints a line per check and exits 1 when one
// fails.
import { isMain } from './is-main.ts';

interface Frame {
  id?: string;
  event?: string;
  data: Record<string, unknown>;
}

interface EventConnection {
  status: number;
  headers: Headers;
  text(): string;
  /** Reads until the predicate is true, the stream ends or the time is over. */
  until(predicate: (text: string) => boolean): Promise<void>;
  close(): void;
  ended(): boolean;
}

export interface Finding {
  promise: string;
  broken: string | null;
}

export async function checkEventStream(
  url: string,
  token: string,
  { patienceMs = 30_000 } = {},
): Promise<Finding[]> {
  const findings: Finding[] = [];
  const base = `${url.replace(/\/+$/, '')}/api/sdk/sessions`;
  const authorization = `Bearer ${token}`;
  const send = (method: string, path: string, body?: unknown) =>
    fetch(`${base}${path}`, {
      method,
      headers: { authorization, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });

  async function open(query: string, headers: Record<string, string> = {}): Promise<EventConnection> {
    const stop = new AbortController();
    const response = await fetch(`${base}/${sessionId}/events${query}`, {
      headers: { authorization, ...headers },
      signal: stop.signal,
    });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    let isEnded = false;
    return {
      status: response.status,
      headers: response.headers,
      text: () => text,
      ended: () => isEnded,
      close: () => stop.abort(),
      async until(predicate) {
        const deadline = setTimeout(() => stop.abort(), patienceMs);
        try {
          while (!predicate(text)) {
            const chunk = await reader?.read();
            if (chunk === undefined || chunk.done) {
              isEnded = true;
              return;
            }
            text += chunk.value;
          }
        } catch {
          // The deadline or the reader aborts it.
        } finally {
          clearTimeout(deadline);
        }
      },
    };
  }

  async function read(query: string, headers: Record<string, string> = {}): Promise<EventConnection> {
    const connection = await open(query, headers);
    await connection.until(() => false);
    return connection;
  }

  async function hold(
    promise: string,
    check: () => Promise<string | null | undefined> | string | null | undefined,
  ): Promise<void> {
    try {
      findings.push({ promise, broken: (await check()) ?? null });
    } catch (error) {
      findings.push({ promise, broken: `It could not be examined: ${String(error)}` });
    }
  }

  const session = (await (await send('POST', '', { title: 'Conformance' })).json()) as { id: string };
  const sessionId = session.id;
  const liveStream = await open('');
  const receipt = (await (await send('POST', `/${sessionId}/prompt`, { text: 'Say something.' })).json()) as {
    runId: string;
  };
  await liveStream.until(
    (text) => text.includes('run.settled') && /"status":\s*"idle"[^\n]*\n\n$/.test(text),
  );
  liveStream.close();
  const wholeText = await read('?until=idle');
  const frames = readFrames(wholeText.text());
  const durableFrames = frames.filter(({ id }) => id !== undefined);
  const head = durableFrames.length;

  await hold('the answer is text/event-stream and is not kept by caches', () => {
    const contentType = wholeText.headers.get('content-type') ?? '';
    const cacheControl = wholeText.headers.get('cache-control') ?? '';
    if (!contentType.startsWith('text/event-stream')) return `content-type is ${contentType}`;
    return /no-store|no-cache/.test(cacheControl) ? null : `cache-control is ${cacheControl}`;
  });
  await hold('lines end with a single line feed', () =>
    wholeText.text().includes('\r') ? 'there is a carriage return' : null,
  );
  await hold('the first frame is stream.ready, without an id', () =>
    frames[0]?.data['type'] === 'stream.ready' && frames[0].id === undefined
      ? null
      : `it is ${JSON.stringify(frames[0])}`,
  );
  await hold('the time to wait before coming back is given', () =>
    /^retry: \d+$/m.test(wholeText.text()) ? null : 'there is no retry line',
  );
  await hold('the seq of durable events has no gap and begins at 1', () =>
    firstGap(
      durableFrames.map(({ data }) => Number(data['seq'])),
      1,
    ),
  );
  await hold('the id of a frame is its seq, and only durable events have either', () => {
    const unexpectedFrame = frames.find(
      ({ id, data }) =>
        (id === undefined) !== (data['seq'] === undefined) ||
        (id !== undefined && id !== String(data['seq'])),
    );
    return unexpectedFrame ? JSON.stringify(unexpectedFrame) : null;
  });
  await hold('data is one flat object whose type is the name of the frame, with session and time', () => {
    const unexpectedFrame = frames.find(
      ({ event, data }) =>
        data['type'] !== event ||
        data['sessionId'] !== sessionId ||
        Number.isNaN(Date.parse(String(data['time']))),
    );
    return unexpectedFrame ? JSON.stringify(unexpectedFrame) : null;
  });
  await hold('a run has exactly one run.settled with its outcome', () => {
    const settledFrames = frames.filter(
      ({ data }) => data['type'] === 'run.settled' && data['runId'] === receipt.runId,
    );
    return settledFrames.length === 1 && typeof settledFrames[0]?.data['outcome'] === 'string'
      ? null
      : `there are ${settledFrames.length}`;
  });
  await hold('what was told live is what is told again', () => {
    const liveFrames = readFrames(liveStream.text()).filter(({ id }) => id !== undefined);
    const framesById = new Map(durableFrames.map((frame) => [frame.id, frame]));
    const unexpectedFrame = liveFrames.find(
      (frame) =>
        JSON.stringify(sortMembers(frame.data)) !==
        JSON.stringify(sortMembers(framesById.get(frame.id)?.data)),
    );
    if (liveFrames.length !== head) return `${liveFrames.length} live and ${head} again`;
    return unexpectedFrame
      ? `${JSON.stringify(unexpectedFrame)} was ${JSON.stringify(framesById.get(unexpectedFrame.id))}`
      : null;
  });
  await hold('deltas carry part and offset, and make the text that the part ends with', () => {
    const texts = new Map<string, string>();
    for (const { data } of readFrames(liveStream.text())) {
      const partId = String(data['partId']);
      if (data['type'] === 'part.snapshot') texts.set(partId, String(data['text']));
      if (data['type'] === 'part.delta') {
        const text = texts.get(partId) ?? '';
        if (data['offset'] !== text.length)
          return `offset ${String(data['offset'])} where ${text.length} was due`;
        texts.set(partId, text + String(data['delta']));
      }
      if (data['type'] === 'part.ended' && texts.has(partId) && texts.get(partId) !== data['text'])
        return `${JSON.stringify(texts.get(partId))} became ${JSON.stringify(data['text'])}`;
    }
    return null;
  });
  for (const afterSeq of [0, 1, Math.floor(head / 2), head - 1, head]) {
    await hold(`after=${afterSeq} of ${head} begins with the next`, async () => {
      const tail = readFrames((await read(`?until=idle&after=${afterSeq}`)).text()).filter(
        ({ id }) => id !== undefined,
      );
      return tail.length !== head - afterSeq
        ? `${tail.length} events came`
        : firstGap(
            tail.map(({ id }) => Number(id)),
            afterSeq + 1,
          );
    });
  }
  await hold('Last-Event-ID counts before after', async () => {
    const tail = readFrames(
      (await read(`?until=idle&after=0`, { 'last-event-id': String(head - 1) })).text(),
    ).filter(({ id }) => id !== undefined);
    return tail.length === 1 && tail[0]?.id === String(head)
      ? null
      : `ids ${tail.map(({ id }) => id).join(', ')}`;
  });
  for (const [query, headers] of [
    [`?after=${head + 1}`, {}],
    ['?after=x', {}],
    ['?after=-1', {}],
    ['?after=1.5', {}],
    ['', { 'last-event-id': String(head + 1_000) }],
    ['', { 'last-event-id': 'x' }],
  ] as const) {
    await hold(`${query || JSON.stringify(headers)} is 400`, async () => {
      const connection = await open(query, headers);
      connection.close();
      return connection.status === 400 ? null : `it is ${connection.status}`;
    });
  }
  await hold('an unknown session is 404', async () => {
    const response = await fetch(`${base}/no-such-session/events`, { headers: { authorization } });
    await response.body?.cancel();
    return response.status === 404 ? null : `it is ${response.status}`;
  });
  await hold('without a credential it is 401', async () => {
    const response = await fetch(`${base}/${sessionId}/events`);
    await response.body?.cancel();
    return response.status === 401 ? null : `it is ${response.status}`;
  });
  await hold('as lines of JSON the same events come', async () => {
    const lines = await read('?until=idle', { accept: 'application/x-ndjson' });
    if (!(lines.headers.get('content-type') ?? '').startsWith('application/x-ndjson'))
      return `content-type is ${lines.headers.get('content-type')}`;
    const events = lines
      .text()
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .filter((event) => event['seq'] !== undefined);
    const unexpectedEvent = events.find(
      (event, index) =>
        JSON.stringify(sortMembers(event)) !== JSON.stringify(sortMembers(durableFrames[index]?.data)),
    );
    if (events.length !== head) return `${events.length} of ${head} events`;
    return unexpectedEvent ? JSON.stringify(unexpectedEvent) : null;
  });
  await hold('until=idle ends by itself', () => (wholeText.ended() ? null : 'it did not'));
  await send('DELETE', `/${sessionId}`);
  return findings;
}

export function readFrames(text: string): Frame[] {
  return text.split('\n\n').flatMap((block) => {
    const frame: { id?: string; event?: string; data: string[] } = { data: [] };
    for (const line of block.split('\n')) {
      if (line.startsWith('id: ')) frame.id = line.slice(4);
      else if (line.startsWith('event: ')) frame.event = line.slice(7);
      else if (line.startsWith('data: ')) frame.data.push(line.slice(6));
    }
    return frame.data.length === 0
      ? []
      : [{ ...frame, data: JSON.parse(frame.data.join('\n')) as Record<string, unknown> }];
  });
}

function firstGap(numbers: readonly number[], fromNumber: number): string | null {
  const gapIndex = numbers.findIndex((number, index) => number !== fromNumber + index);
  return gapIndex < 0 ? null : `${numbers[gapIndex]} where ${fromNumber + gapIndex} was due`;
}

function sortMembers(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortMembers);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => [key, sortMembers(member)]),
  );
}

if (isMain(import.meta.url)) {
  const usage = [
    'Usage: node test/contract/sse-conformance.ts URL TOKEN',
    '',
    'Holds the event stream of the agent at URL, such as http://127.0.0.1:5314, against what it promises: the first frame,',
    'ids without gaps, resuming after each kind of cursor, refusals, deltas and their offsets, lines of JSON, the end.',
    'TOKEN is a bearer token of that agent. It makes one session, prompts it once with the default model, and removes it.',
    'Prints a line a promise; exits 0 when all are kept, 1 when one is broken, 2 when it was not told what to ask.',
  ].join('\n');
  const [url, token] = process.argv.slice(2);
  if (url === '--help' || url === '-h') {
    console.log(usage);
    process.exit(0);
  }
  if (url === undefined || token === undefined || !URL.canParse(url)) {
    console.error(usage);
    process.exit(2);
  }
  const findings = await checkEventStream(url, token);
  for (const { promise, broken } of findings)
    console.log(broken === null ? `ok    ${promise}` : `FAIL  ${promise}: ${broken}`);
  process.exitCode = findings.some(({ broken }) => broken !== null) ? 1 : 0;
}
