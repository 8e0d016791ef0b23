// Checks an event stream against the contract: node test/contract/sse-conformance.ts URL TOKEN
// It creates a session, prompts it, and reads its events in every way that the contract names. It
// works against any server that implements the contract. Prints a line per check and exits 1 when a
// check fails.

interface Frame {
  id?: string;
  event?: string;
  data: Record<string, unknown>;
}

interface EventConnection {
  status: number;
  headers: Headers;
  text(): string;
  /** Reads until the predicate is true, the stream ends or the timeout expires. */
  until(predicate: (text: string) => boolean): Promise<void>;
  close(): void;
  ended(): boolean;
}

export interface Finding {
  promise: string;
  broken: string | null;
}

/** How the promise is broken; null when it is kept. */
type Violation = string | null;
type Check = [promise: string, findViolation: () => Promise<Violation> | Violation];

/** The events of one session with one run, as they were streamed live and as they are replayed. */
interface Recording {
  sessionId: string;
  runId: string;
  liveFrames: Frame[];
  replay: EventConnection;
  frames: Frame[];
  durableFrames: Frame[];
}

export async function checkEventStream(
  url: string,
  token: string,
  { timeoutMs = 30_000 } = {},
): Promise<Finding[]> {
  const sessions = new Sessions(url, token, timeoutMs);
  const recording = await record(sessions);
  const checks = [
    ...frameChecks(recording),
    ...replayChecks(recording),
    ...cursorChecks(sessions, recording),
    ...refusalChecks(sessions, recording),
    ...ndjsonChecks(sessions, recording),
  ];
  const findings: Finding[] = [];
  for (const [promise, findViolation] of checks) {
    try {
      findings.push({ promise, broken: await findViolation() });
    } catch (error) {
      findings.push({ promise, broken: `the check failed: ${String(error)}` });
    }
  }
  await sessions.send('DELETE', `/${recording.sessionId}`);
  return findings;
}

/** The routes of sessions at one server. */
class Sessions {
  readonly base: string;
  readonly #authorization: string;
  readonly #timeoutMs: number;

  constructor(url: string, token: string, timeoutMs: number) {
    this.base = `${url.replace(/\/+$/, '')}/api/sdk/sessions`;
    this.#authorization = `Bearer ${token}`;
    this.#timeoutMs = timeoutMs;
  }

  send(method: string, path: string, body?: unknown): Promise<Response> {
    return fetch(`${this.base}${path}`, {
      method,
      headers: {
        authorization: this.#authorization,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  }

  /** Opens the event stream of a session. */
  async open(
    sessionId: string,
    query: string,
    headers: Record<string, string> = {},
  ): Promise<EventConnection> {
    const abort = new AbortController();
    const response = await fetch(`${this.base}/${sessionId}/events${query}`, {
      headers: { authorization: this.#authorization, ...headers },
      signal: abort.signal,
    });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    const timeoutMs = this.#timeoutMs;
    let text = '';
    let isEnded = false;
    return {
      status: response.status,
      headers: response.headers,
      text: () => text,
      ended: () => isEnded,
      close: () => abort.abort(),
      async until(predicate) {
        const deadline = setTimeout(() => abort.abort(), timeoutMs);
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
          // The deadline or `close` aborts it; the checks see an incomplete text.
        } finally {
          clearTimeout(deadline);
        }
      },
    };
  }

  /** Reads the event stream of a session to its end. */
  async read(
    sessionId: string,
    query: string,
    headers: Record<string, string> = {},
  ): Promise<EventConnection> {
    const connection = await this.open(sessionId, query, headers);
    await connection.until(() => false);
    return connection;
  }

  /** The durable frames of a replay. */
  async readDurable(
    sessionId: string,
    query: string,
    headers: Record<string, string> = {},
  ): Promise<Frame[]> {
    return durableOf(readFrames((await this.read(sessionId, query, headers)).text()));
  }
}

async function record(sessions: Sessions): Promise<Recording> {
  const created = await sessions.send('POST', '', { title: 'Conformance' });
  const { id: sessionId } = (await created.json()) as { id: string };
  const liveStream = await sessions.open(sessionId, '');
  const receipt = await sessions.send('POST', `/${sessionId}/prompt`, { text: 'Say something.' });
  const { runId } = (await receipt.json()) as { runId: string };
  await liveStream.until(
    (text) => text.includes('run.settled') && /"status":\s*"idle"[^\n]*\n\n$/.test(text),
  );
  liveStream.close();
  const replay = await sessions.read(sessionId, '?until=idle');
  const frames = readFrames(replay.text());
  return {
    sessionId,
    runId,
    liveFrames: readFrames(liveStream.text()),
    replay,
    frames,
    durableFrames: durableOf(frames),
  };
}

/** The headers, the lines and each frame by itself. */
function frameChecks({ sessionId, replay, frames, durableFrames }: Recording): Check[] {
  return [
    [
      'the answer is text/event-stream and is not cached',
      () => {
        const contentType = replay.headers.get('content-type') ?? '';
        const cacheControl = replay.headers.get('cache-control') ?? '';
        if (!contentType.startsWith('text/event-stream')) return `content-type is ${contentType}`;
        return /no-store|no-cache/.test(cacheControl) ? null : `cache-control is ${cacheControl}`;
      },
    ],
    [
      'lines end with a single line feed',
      () => (replay.text().includes('\r') ? 'there is a carriage return' : null),
    ],
    [
      'the first frame is stream.ready, without an id',
      () =>
        frames[0]?.data['type'] === 'stream.ready' && frames[0].id === undefined
          ? null
          : `it is ${JSON.stringify(frames[0])}`,
    ],
    [
      'a retry line sets the delay of a reconnection',
      () => (/^retry: \d+$/m.test(replay.text()) ? null : 'there is no retry line'),
    ],
    [
      'the seq of durable events begins at 1 and has no gap',
      () =>
        findGap(
          durableFrames.map(({ data }) => Number(data['seq'])),
          1,
        ),
    ],
    [
      'the id of a frame is its seq, and only durable events have either',
      () =>
        describeFrame(
          frames.find(
            ({ id, data }) =>
              (id === undefined) !== (data['seq'] === undefined) ||
              (id !== undefined && id !== String(data['seq'])),
          ),
        ),
    ],
    [
      'data is one flat object with session and time, whose type is the name of the frame',
      () =>
        describeFrame(
          frames.find(
            ({ event, data }) =>
              data['type'] !== event ||
              data['sessionId'] !== sessionId ||
              Number.isNaN(Date.parse(String(data['time']))),
          ),
        ),
    ],
  ];
}

/** The run as a whole, live and replayed. */
function replayChecks({ runId, liveFrames, replay, frames, durableFrames }: Recording): Check[] {
  return [
    [
      'a run has exactly one run.settled with its outcome',
      () => {
        const settledFrames = frames.filter(
          ({ data }) => data['type'] === 'run.settled' && data['runId'] === runId,
        );
        return settledFrames.length === 1 && typeof settledFrames[0]?.data['outcome'] === 'string'
          ? null
          : `there are ${settledFrames.length}`;
      },
    ],
    [
      'a replay has the durable events of the live stream',
      () => {
        const liveDurable = durableOf(liveFrames);
        if (liveDurable.length !== durableFrames.length)
          return `${liveDurable.length} live and ${durableFrames.length} replayed`;
        const index = liveDurable.findIndex(
          ({ data }, position) => !isSameData(data, durableFrames[position]?.data),
        );
        return index < 0
          ? null
          : `${JSON.stringify(liveDurable[index])} was ${JSON.stringify(durableFrames[index])}`;
      },
    ],
    ['deltas carry part and offset, and add up to the text of the part', () => findDeltaError(liveFrames)],
    ['until=idle ends the stream', () => (replay.ended() ? null : 'it did not end')],
  ];
}

function findDeltaError(liveFrames: readonly Frame[]): Violation {
  const texts = new Map<string, string>();
  for (const { data } of liveFrames) {
    const partId = String(data['partId']);
    if (data['type'] === 'part.snapshot') texts.set(partId, String(data['text']));
    if (data['type'] === 'part.delta') {
      const text = texts.get(partId) ?? '';
      if (data['offset'] !== text.length) return `offset ${String(data['offset'])} instead of ${text.length}`;
      texts.set(partId, text + String(data['delta']));
    }
    if (data['type'] === 'part.ended' && texts.has(partId) && texts.get(partId) !== data['text'])
      return `${JSON.stringify(texts.get(partId))} became ${JSON.stringify(data['text'])}`;
  }
  return null;
}

function cursorChecks(sessions: Sessions, { sessionId, durableFrames }: Recording): Check[] {
  const head = durableFrames.length;
  const positions = [0, 1, Math.floor(head / 2), head - 1, head];
  return [
    ...positions.map((afterSeq): Check => [
      `after=${afterSeq} of ${head} begins with the next event`,
      async () => {
        const tail = await sessions.readDurable(sessionId, `?until=idle&after=${afterSeq}`);
        if (tail.length !== head - afterSeq) return `there are ${tail.length} events`;
        return findGap(
          tail.map(({ id }) => Number(id)),
          afterSeq + 1,
        );
      },
    ]),
    [
      'Last-Event-ID overrides after',
      async () => {
        const cursor = { 'last-event-id': String(head - 1) };
        const tail = await sessions.readDurable(sessionId, '?until=idle&after=0', cursor);
        return tail.length === 1 && tail[0]?.id === String(head)
          ? null
          : `the ids are ${tail.map(({ id }) => id).join(', ')}`;
      },
    ],
  ];
}

function refusalChecks(sessions: Sessions, { sessionId, durableFrames }: Recording): Check[] {
  const head = durableFrames.length;
  const wrongCursors: [query: string, headers: Record<string, string>][] = [
    [`?after=${head + 1}`, {}],
    ['?after=x', {}],
    ['?after=-1', {}],
    ['?after=1.5', {}],
    ['', { 'last-event-id': String(head + 1_000) }],
    ['', { 'last-event-id': 'x' }],
  ];
  const compareStatus = (status: number, expected: number): Violation =>
    status === expected ? null : `it is ${status}`;
  return [
    ...wrongCursors.map(([query, headers]): Check => [
      `${query || JSON.stringify(headers)} is 400`,
      async () => {
        const connection = await sessions.open(sessionId, query, headers);
        connection.close();
        return compareStatus(connection.status, 400);
      },
    ]),
    [
      'an unknown session is 404',
      async () => {
        const connection = await sessions.open('no-such-session', '');
        connection.close();
        return compareStatus(connection.status, 404);
      },
    ],
    [
      'a request without a credential is 401',
      async () => {
        const response = await fetch(`${sessions.base}/${sessionId}/events`);
        await response.body?.cancel();
        return compareStatus(response.status, 401);
      },
    ],
  ];
}

function ndjsonChecks(sessions: Sessions, { sessionId, durableFrames }: Recording): Check[] {
  return [
    [
      'application/x-ndjson has the same events',
      async () => {
        const lines = await sessions.read(sessionId, '?until=idle', { accept: 'application/x-ndjson' });
        const contentType = lines.headers.get('content-type') ?? '';
        if (!contentType.startsWith('application/x-ndjson')) return `content-type is ${contentType}`;
        const events = lines
          .text()
          .split('\n')
          .filter((line) => line !== '')
          .map((line) => JSON.parse(line) as Record<string, unknown>)
          .filter((event) => event['seq'] !== undefined);
        if (events.length !== durableFrames.length)
          return `${events.length} of ${durableFrames.length} events`;
        const unexpectedEvent = events.find((event, index) => !isSameData(event, durableFrames[index]?.data));
        return unexpectedEvent === undefined ? null : JSON.stringify(unexpectedEvent);
      },
    ],
  ];
}

function durableOf(frames: readonly Frame[]): Frame[] {
  return frames.filter(({ id }) => id !== undefined);
}

function describeFrame(unexpectedFrame: Frame | undefined): Violation {
  return unexpectedFrame === undefined ? null : JSON.stringify(unexpectedFrame);
}

function isSameData(one: unknown, other: unknown): boolean {
  return JSON.stringify(sortMembers(one)) === JSON.stringify(sortMembers(other));
}

function readFrames(text: string): Frame[] {
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

function findGap(numbers: readonly number[], fromNumber: number): string | null {
  const gapIndex = numbers.findIndex((number, index) => number !== fromNumber + index);
  return gapIndex < 0 ? null : `${numbers[gapIndex]} instead of ${fromNumber + gapIndex}`;
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

if (import.meta.main) {
  const usage = [
    'Usage: node test/contract/sse-conformance.ts URL TOKEN',
    '',
    'Checks the event stream of the agent at URL, such as http://127.0.0.1:5314, against the contract:',
    'the first frame, ids without gaps, resuming after each kind of cursor, refusals, deltas and their',
    'offsets, lines of JSON, the end. TOKEN is a bearer token of that agent. The program creates one',
    'session, prompts it once with the default model, and removes it. It prints a line per promise.',
    '',
    'Exit codes: 0 all promises are kept, 1 one is broken, 2 URL or TOKEN is missing.',
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
